/** Prompts of one task set begin alike, often for longer than a column is wide: then what differs is shown. */

const LEAST = 24;

/** Each text without the beginning that it shares with another of them, but for the last word of it, where that is long. */
export function distinct(texts: readonly string[]): ReadonlyMap<string, string> {
  const ordered = [...new Set(texts)].sort();
  return new Map(
    ordered.map((text, at) => {
      // What a text shares most with stands beside it.
      const shared = Math.max(sharedBy(text, ordered[at - 1] ?? ""), sharedBy(text, ordered[at + 1] ?? ""));
      const from = text.lastIndexOf(" ", text.lastIndexOf(" ", shared - 1) - 1) + 1;
      return [text, from < LEAST || from >= text.length ? text : `… ${text.slice(from)}`];
    }),
  );
}

function sharedBy(one: string, other: string): number {
  let length = 0;
  while (length < Math.min(one.length, other.length) && one[length] === other[length]) length++;
  return length;
}
