/** Events as people read them in the feed. */

import type { PoolEvent } from "./api/live";

export type FeedKind = "calls" | "trajectories" | "signals" | "batches" | "curation" | "other";

const KINDS: [string, FeedKind][] = [
  ["step.", "calls"],
  ["exchange.", "calls"],
  ["trajectory.", "trajectories"],
  ["group.", "trajectories"],
  ["reward.", "signals"],
  ["feedback.", "signals"],
  ["label.", "signals"],
  ["annotation.", "signals"],
  ["signal.", "signals"],
  ["batch.", "batches"],
  ["unit.", "batches"],
  ["policy.", "batches"],
  ["curation.", "curation"],
  ["decision.", "curation"],
  ["dataset.", "curation"],
];

export const kindOf = (event: PoolEvent): FeedKind => KINDS.find(([begin]) => event.kind.startsWith(begin))?.[1] ?? "other";

/** What an event says beside what it is about: its data in words. */
export function saidBy(event: PoolEvent): string {
  const data = event.data ?? {};
  return Object.entries(data)
    .filter(([name, value]) => value !== null && !name.endsWith("_id"))
    .map(([name, value]) => `${name} ${typeof value === "string" ? value : JSON.stringify(value)}`)
    .join(", ");
}

/** The newest first, each once, at most `most`. */
export function joined(before: readonly PoolEvent[], came: readonly PoolEvent[], most: number): PoolEvent[] {
  const bySequence = new Map([...before, ...came].map((event) => [event.sequence, event]));
  return [...bySequence.values()].sort((a, b) => b.sequence - a.sequence).slice(0, most);
}
