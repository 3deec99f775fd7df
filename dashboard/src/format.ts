/** Numbers, times and stored text as people read them. */

const whole = new Intl.NumberFormat();
const short = new Intl.NumberFormat(undefined, { notation: "compact", maximumFractionDigits: 1 });
const clock = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const ages = new Intl.RelativeTimeFormat(undefined, { numeric: "auto", style: "short" });

export const count = (value: number): string => whole.format(value);
/** A number with what is counted: `one` for 1, else `many`. */
export const counted = (value: number, one: string, many: string): string => `${whole.format(value)} ${value === 1 ? one : many}`;
export const compact = (value: number): string => (Math.abs(value) < 10_000 ? whole.format(value) : short.format(value));
export const decimal = (value: number): string => (Number.isInteger(value) ? String(value) : String(Number(value.toPrecision(3))));

/** A moment in seconds since the epoch, in full and in local time. */
export const exact = (seconds: number): string => clock.format(seconds * 1000);

const STEPS: [Intl.RelativeTimeFormatUnit, number][] = [
  ["day", 86_400],
  ["hour", 3_600],
  ["minute", 60],
];

/** How long ago, or ahead, a moment is. */
export function age(seconds: number, now: number = Date.now() / 1000): string {
  const passed = seconds - now;
  for (const [unit, size] of STEPS) {
    if (Math.abs(passed) >= size) return ages.format(Math.round(passed / size), unit);
  }
  return ages.format(Math.round(passed), "second");
}

// Controls but for tab and newline, marks of direction, and what has no width: they would change how other text looks.
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]/gu;

/** Text as it is stored, with what cannot be seen written out. */
export function visible(text: string): string {
  return text.replace(HIDDEN, (found) => `\\u${found.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

/** The beginning of a text, and how much is left out. */
export function cut(text: string, most: number): { text: string; left: number } {
  return text.length <= most ? { text, left: 0 } : { text: text.slice(0, most), left: text.length - most };
}

const SIZES = ["B", "kB", "MB", "GB", "TB"];

/** A number of bytes. */
export function bytes(value: number): string {
  const place = value < 1 ? 0 : Math.min(SIZES.length - 1, Math.floor(Math.log10(value) / 3));
  const shown = value / 1000 ** place;
  return `${shown < 10 ? Math.round(shown * 10) / 10 : Math.round(shown)} ${SIZES[place]}`;
}

/** A span of time in seconds. */
export function span(seconds: number): string {
  if (seconds < 60) return `${seconds < 10 ? Math.round(seconds * 10) / 10 : Math.round(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h ${Math.round((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86_400)} d ${Math.round((seconds % 86_400) / 3600)} h`;
}
