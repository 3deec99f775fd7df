/** The `where` language in the field of a filter: what can be written at a place, where an error lies, and conditions
 * put to a filter or taken from it. The server alone says what an expression means.
 */

export type Field = {
  name: string;
  kind: "text" | "number" | "boolean" | "time" | "json" | "presence";
  doc: string;
  keys: string | null;
  plain: boolean;
  indexed: boolean;
};
export type Offer = { text: string; says: string };
/** `half`: a word is begun at the place that is none yet, so that the first offer is probably meant. */
export type Offers = { from: number; to: number; offers: Offer[]; half: boolean };
type Token = { kind: "name" | "text" | "number" | "operator"; text: string; from: number; to: number };

const TOKEN =
  /(?<name>[A-Za-z_]\w*(?:\.(?:[A-Za-z0-9_][\w-]*|"[^"]*"|'[^']*'))*\.?)|(?<text>'(?:[^'\\]|\\.)*'?|"(?:[^"\\]|\\.)*"?)|(?<number>-?\d[\d.eE+]*[smhdw]?)|(?<operator>==|!=|<=|>=|[<>(),+!=-])/gsu;
const LOGIC = new Set(["and", "or", "not"]);
const CONSTANTS = new Set(["true", "false", "null", "now"]);
const MOST = 12;

/** Its tokens as far as they can be told; what is none is passed over. */
export function tokensOf(source: string): Token[] {
  return [...source.matchAll(TOKEN)].map((found) => {
    const kind = (Object.entries(found.groups!).find(([, text]) => text !== undefined) ?? ["name"])[0] as Token["kind"];
    return { kind, text: found[0], from: found.index, to: found.index + found[0].length };
  });
}

/** What can stand where the caret is, with the part of the source that it takes the place of. `values`: known values of
 * fields, the most frequent first.
 */
export function offersAt(source: string, caret: number, fields: readonly Field[], values: Readonly<Record<string, readonly string[]>> = {}): Offers {
  const tokens = tokensOf(source);
  const current = tokens.find((each) => each.from < caret && caret <= each.to && each.kind !== "operator");
  const from = current?.from ?? caret;
  const begun = source.slice(from, caret);
  const before = tokens.filter((each) => each.to <= from);
  const all = candidates(before, fields, values);
  const wanted = begun.toLowerCase();
  const bare = wanted.replace(/^['"]/, "");
  const fits = (text: string) => text.toLowerCase().startsWith(wanted) || text.toLowerCase().replace(/^'/, "").startsWith(bare);
  const first = all.filter((each) => fits(each.text));
  const inside = bare.length < 2 ? [] : all.filter((each) => !fits(each.text) && each.text.toLowerCase().includes(bare));
  const offers = [...first, ...inside].slice(0, MOST);
  // What is written out already needs no offer.
  const done = offers.length === 1 && offers[0]!.text === begun;
  const half = first.length > 0 && begun !== "" && !CONSTANTS.has(begun) && !offers.some((each) => each.text === begun);
  return { from, to: current?.to ?? caret, offers: done ? [] : offers, half };
}

function candidates(before: readonly Token[], fields: readonly Field[], values: Readonly<Record<string, readonly string[]>>): Offer[] {
  const last = before[before.length - 1];
  if (last === undefined || LOGIC.has(last.text) || (last.text === "(" && before[before.length - 2]?.text !== "in")) {
    return [...fields.filter((each) => each.kind !== "presence").map(offerOf), { text: "not", says: "the opposite" }, { text: "has", says: "there is a value" }];
  }
  if (last.text === "has") return fields.map(offerOf);
  if (last.text === "now") return words("+", "-", "and", "or");
  const asked = fieldBefore(before, fields);
  const expectsValue = /^(==|!=|<|<=|>|>=|like)$/.test(last.text) || ((last.text === "(" || last.text === ",") && asked !== undefined);
  if (expectsValue) return valuesOf(asked, values);
  if (last.text === "is") return words("null", "not null");
  if (last.kind === "name" && !CONSTANTS.has(last.text)) return operatorsOf(asked);
  if (listIsOpen(before)) return words(",", ")");
  return words("and", "or");
}

const words = (...texts: string[]): Offer[] => texts.map((text) => ({ text, says: "" }));

function offerOf(field: Field): Offer {
  const text = field.keys === null || field.plain ? field.name : `${field.name}.`;
  return { text, says: `${field.doc.replaceAll("`", "")}${field.indexed ? " (indexed)" : ""}` };
}

function fieldBefore(before: readonly Token[], fields: readonly Field[]): { field: Field; name: string } | undefined {
  for (let at = before.length - 1; at >= 0; at--) {
    const { kind, text } = before[at]!;
    if (kind !== "name" || LOGIC.has(text) || CONSTANTS.has(text) || /^(in|like|is|has)$/.test(text)) continue;
    const field = fields.find((each) => each.name === text) ?? fields.find((each) => each.keys !== null && text.startsWith(`${each.name}.`));
    return field === undefined ? undefined : { field, name: text };
  }
  return undefined;
}

function operatorsOf(asked: { field: Field } | undefined): Offer[] {
  const kind = asked?.field.kind;
  const equal = words("==", "!=");
  const ordered = words(">=", "<=", ">", "<");
  const others = words("in (", "is null", "is not null");
  if (kind === "boolean") return words("and", "or");
  if (kind === "number" || kind === "time") return [...ordered, ...equal, ...others];
  return [...equal, ...others, ...words("like", "not in ("), ...(kind === "json" ? ordered : [])];
}

function valuesOf(asked: { field: Field; name: string } | undefined, values: Readonly<Record<string, readonly string[]>>): Offer[] {
  if (asked === undefined) return [];
  const known = (values[asked.name] ?? []).map((text) => ({ text: quoted(text), says: "" }));
  if (asked.field.kind === "time") return [..."1h 24h 7d".split(" ").map((span) => ({ text: `now - ${span}`, says: "before now" })), ...known];
  if (asked.field.kind === "json") return [...known, ...words("true", "false", "null")];
  return known;
}

function listIsOpen(before: readonly Token[]): boolean {
  for (let at = before.length - 1; at > 0; at--) {
    if (before[at]!.text === ")") return false;
    if (before[at]!.text === "(") return before[at - 1]!.text === "in";
  }
  return false;
}

/** Text in quotes, as the language reads it. */
export const quoted = (text: string): string =>
  `'${text.replace(/['\\]/g, "\\$&").replaceAll("\n", "\\n").replaceAll("\t", "\\t").replaceAll("\r", "\\r")}'`;

/** Where in the source an error of the server lies, in UTF-16 units; the server counts characters. Null: nowhere. */
export function placeOf(message: string, source: string): number | null {
  const found = /at position (\d+) of the where expression/.exec(message);
  if (found === null) return null;
  return [...source].slice(0, Number(found[1])).join("").length;
}

/** The source with conditions that have to hold too; without them where all of them stood there already. */
export function toggledAll(source: string, conditions: readonly string[]): string {
  const parts = conjunctsOf(source) ?? [`(${source.trim()})`];
  const others = parts.filter((each) => !conditions.includes(each));
  return (holdsAll(source, conditions) ? others : [...others, ...conditions]).join(" and ");
}

/** Whether the source holds each of these as a condition that has to hold. */
export const holdsAll = (source: string, conditions: readonly string[]): boolean => {
  const parts = conjunctsOf(source) ?? [];
  return conditions.every((each) => parts.includes(each));
};

/** What is joined by `and` at the top; null where an `or` stands there. */
function conjunctsOf(source: string): string[] | null {
  const parts: string[] = [];
  let depth = 0;
  let begin = 0;
  for (const { kind, text, from, to } of tokensOf(source)) {
    if (kind === "operator") depth += text === "(" ? 1 : text === ")" ? -1 : 0;
    if (depth > 0 || kind !== "name") continue;
    if (text === "or") return null;
    if (text !== "and") continue;
    parts.push(source.slice(begin, from).trim());
    begin = to;
  }
  parts.push(source.slice(begin).trim());
  return parts.filter((each) => each !== "");
}
