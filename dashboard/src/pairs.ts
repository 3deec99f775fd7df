/** Which replies may be compared: rollouts of a group, and branches of a trajectory that answer one prompt. */

import type { Schemas } from "./api/client";

type Step = Schemas["Step"];

/** Pairs in the order in which each new one is compared with all before it: (0,1), (0,2), (1,2), (0,3), ... */
export function pairsOf<T>(members: readonly T[]): [T, T][] {
  return members.flatMap((second, place) => members.slice(0, place).map((first): [T, T] => [first, second]));
}

/** Steps of a trajectory that answer one prompt: children of one step, or openings, that the same call or a repeat of it
 * brought. Those of sub-agents and rewritten histories answer other prompts. */
export function siblingsOf(steps: readonly Step[]): Step[][] {
  const byParent = new Map<string, Step[]>();
  for (const step of steps) {
    const parent = step.parent_step_id ?? "";
    if (step.fork_reason == null || step.fork_reason === "parallel" || step.fork_reason === "retry") byParent.set(parent, [...(byParent.get(parent) ?? []), step]);
  }
  return [...byParent.values()].filter((group) => group.length > 1 && group.some((step) => step.fork_reason != null));
}
