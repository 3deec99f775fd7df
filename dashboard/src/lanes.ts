/** Branches drawn beside the steps: each has a lane, which is free again once its branch has ended. */

import type { Placed } from "./branches";

/** `from`: the lane that a branch leaves at its first step, null where it goes on or leaves none. `through`: lanes of
 * branches that have steps before and after this row. `goesOn`: its own branch has later steps. `begins`: it has none before.
 */
export type Lane = { lane: number; from: number | null; through: number[]; goesOn: boolean; begins: boolean };

type Linked = { step_id: string; parent_step_id?: string | null };

export function lanesOf<T extends Linked>(placed: readonly Placed<T>[]): Lane[] {
  const last = new Map<number, number>();
  const branchOf = new Map<string, number>();
  placed.forEach(({ step, branch }, row) => {
    last.set(branch, row);
    branchOf.set(step.step_id, branch);
  });
  const taken: (number | null)[] = [];
  const laneOf = new Map<number, number>();
  return placed.map(({ step, branch }, row) => {
    const begins = !laneOf.has(branch);
    if (begins) {
      const free = taken.findIndex((each) => each === null);
      const lane = free < 0 ? taken.length : free;
      taken[lane] = branch;
      laneOf.set(branch, lane);
    }
    const lane = laneOf.get(branch)!;
    const parent = step.parent_step_id == null ? undefined : branchOf.get(step.parent_step_id);
    const from = begins && parent !== undefined && parent !== branch ? (laneOf.get(parent) ?? null) : null;
    const through = taken.flatMap((each, at) => (each !== null && at !== lane ? [at] : []));
    const goesOn = last.get(branch)! > row;
    if (!goesOn) taken[lane] = null;
    return { lane, from, through, goesOn, begins };
  });
}

/** What a row of a timeline draws as bars, in shares of the largest (0 to 1). */
export type Measures = { latency: number; prompt: number; reply: number };

type Measured = { latency_ms?: number | null; prompt_length?: number | null; response_length?: number | null };

export function measuresOf(steps: readonly Measured[]): Measures[] {
  const longest = Math.max(1, ...steps.map((each) => each.latency_ms ?? 0));
  const most = Math.max(1, ...steps.map((each) => (each.prompt_length ?? 0) + (each.response_length ?? 0)));
  return steps.map((each) => ({ latency: (each.latency_ms ?? 0) / longest, prompt: (each.prompt_length ?? 0) / most, reply: (each.response_length ?? 0) / most }));
}
