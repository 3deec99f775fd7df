/** Rules as lines of a text, and where in it the server found a fault. */

import { ApiError } from "./api/client";

export type Rule = { text: string; line: number; from: number };
export type RuleFault = { line: number; message: string; hint: string | null; before: string; at: string; after: string; from: number; to: number };

/** The lines that say something, trimmed; where each begins in the text. */
export function rulesOf(text: string): Rule[] {
  const found: Rule[] = [];
  let from = 0;
  for (const [place, line] of text.split("\n").entries()) {
    const rule = line.trim();
    if (rule !== "") found.push({ text: rule, line: place + 1, from: from + line.indexOf(rule) });
    from += line.length + 1;
  }
  return found;
}

/** What a rule does with those that it holds for; `mark`: tags or weighs them, and other rules decide. */
export function verdictOf(rule: string): "ready" | "exclude" | "review" | "mark" {
  const bare = rule.replace(/"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'/g, "''");
  const found = /\bthen\s+(ready|exclude|review)\b/.exec(bare)?.[1];
  return (found as "ready" | "exclude" | "review" | undefined) ?? "mark";
}

/** Where a fault of one rule stands in the text; null where the error is about something else. */
export function faultOf(error: unknown, text: string): RuleFault | null {
  if (!(error instanceof ApiError)) return null;
  const number = /^(?:\$\.)?rules\[(\d+)\]/.exec(error.path ?? "")?.[1];
  const rule = number === undefined ? undefined : rulesOf(text)[Number(number)];
  if (rule === undefined) return null;
  const said = /^(?:rule \d+: )?([\s\S]*?)(?:,? at position (\d+))?$/.exec(error.message)!;
  // The server counts characters, where a text of the browser has two units for some.
  const characters = [...rule.text];
  const place = Math.min(characters.length, Number(said[2] ?? 0));
  const before = characters.slice(0, place).join("");
  const at = /^(?:[\w.]+|[^\w\s]+|\s+)?/.exec(rule.text.slice(before.length))![0];
  const from = rule.from + before.length;
  return { line: rule.line, message: said[1]!, hint: error.hint, before, at: at === "" ? " " : at, after: rule.text.slice(before.length + at.length), from, to: from + at.length };
}
