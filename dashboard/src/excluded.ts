/** Why trajectories are not served, by reason. */

import type { Schemas } from "./api/client";

export type Reason = { says: string; count: number; where: string };

/** The reasons of excluded trajectories, the commonest first. Details of a contradiction differ each time, so those are one. */
export function reasonsOf(excluded: readonly Pick<Schemas["Trajectory"], "excluded_reason">[]): Reason[] {
  const found = new Map<string, Reason>();
  for (const { excluded_reason: reason } of excluded) {
    const doubted = reason?.startsWith("quarantined:") ?? false;
    const says = doubted ? "contradict themselves (quarantined)" : (reason ?? "no reason is on record");
    // One of which many differ leads to all that are excluded, to be looked through.
    const where = doubted || reason == null ? "excluded" : `excluded_reason == ${JSON.stringify(reason)}`;
    found.set(says, { says, where, count: (found.get(says)?.count ?? 0) + 1 });
  }
  return [...found.values()].sort((a, b) => b.count - a.count || a.says.localeCompare(b.says));
}
