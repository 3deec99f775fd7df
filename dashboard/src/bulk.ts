/** What is done with many trajectories at once, in portions that the server takes, with how far it has come. */

import { call, get, type Page, type Schemas } from "./api/client";
import { quoted } from "./where";

export type Told = (done: number) => void;
const PORTION = 200;
const MOST_WHERE = 4096;
const PAGE = 50;

/** Text as JSON where it is some, else as text: `true`, `3`, `good`. */
export function valueOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

async function inPortions(ids: readonly string[], told: Told, send: (portion: readonly string[]) => Promise<unknown>, size = PORTION) {
  for (let at = 0; at < ids.length; at += size) {
    await send(ids.slice(at, at + size));
    told(Math.min(ids.length, at + size));
  }
}

export const label = (ids: readonly string[], name: string, value: unknown, source: string, told: Told) =>
  inPortions(ids, told, (portion) =>
    call("POST", "feedback", { body: { feedback: portion.map((trajectory_id) => ({ kind: "label", trajectory_id, name, value, source })) } }),
  );

/** `verdict` null takes decisions by hand back. */
export const decide = (ids: readonly string[], verdict: "exclude" | "ready" | null, reason: string | null, source: string, told: Told) =>
  inPortions(ids, told, (portion) =>
    call("POST", "decisions", { body: { decisions: portion.map((trajectory_id) => ({ trajectory_id, verdict, reason, source })) } }),
  );

/** For good, one after the other: each is a transaction of its own. */
export const remove = (ids: readonly string[], reason: string, told: Told) =>
  inPortions(ids, told, ([id]) => call("DELETE", `trajectories/${encodeURIComponent(id!)}`, { query: { reason } }), 1);

/** Their records and whole steps as lines of JSON: a trajectory, then its steps. */
export async function exportLines(ids: readonly string[], told: Told): Promise<Blob> {
  const parts: Blob[] = [];
  await inPortions(ids, told, async ([id]) => {
    const trajectory = await get<Schemas["Trajectory"]>(`trajectories/${encodeURIComponent(id!)}`);
    parts.push(new Blob([`${JSON.stringify({ trajectory })}\n`]));
    let cursor: string | null = null;
    do {
      const page: Page<Schemas["Step"]> = await get("steps", { trajectory_id: id, include: "tokens,messages,logprobs", limit: PAGE, cursor });
      // As a blob each page leaves the memory of scripts.
      parts.push(new Blob(page.items.map((step) => `${JSON.stringify({ step })}\n`)));
      cursor = page.next_cursor;
    } while (cursor !== null);
  }, 1);
  return new Blob(parts, { type: "application/jsonl" });
}

/** A filter that these match alone; null where it would be longer than the server reads. */
export function whereOf(ids: readonly string[]): string | null {
  const where = `trajectory_id in (${ids.map(quoted).join(", ")})`;
  return where.length <= MOST_WHERE ? where : null;
}

export type Freeze = { name: string; where: string; channel: string | null; note: string; unrewarded: boolean };

export const freeze = ({ name, where, channel, note, unrewarded }: Freeze): Promise<Schemas["DatasetVersion"]> =>
  call("POST", "datasets", { body: { name, note: note === "" ? null : note, selection: { where: where === "" ? null : where, channel, unrewarded } } });
