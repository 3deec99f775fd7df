/** The stages that trajectories pass, from the counters of the pool. */

import type { Schemas } from "./api/client";

export type Stage = { name: string; count: number; says: string; where: string | null };

/** In order. `where` is the filter that shows those of a stage; null where no listing shows it. */
export function stagesOf(stats: Schemas["PoolStats"]): Stage[] {
  const byStatus = stats.trajectories;
  const byReadiness = stats.readiness ?? {};
  const all = sum(Object.values(byStatus));
  const open = byStatus.open ?? 0;
  const consumers = Object.entries(stats.consumers ?? {});
  const of = (state: "leased" | "acknowledged") => sum(consumers.map(([, each]) => each[state] ?? 0));
  const names = consumers.length === 1 ? `of ${consumers[0]![0]}` : `of ${consumers.length} consumers`;
  return [
    { name: "collected", count: all, says: `${open} still open`, where: "" },
    { name: "complete", count: all - open, says: `${byReadiness.complete ?? 0} wait for a reward`, where: "not open" },
    { name: "ready", count: byReadiness.ready ?? 0, says: "may be served", where: "ready" },
    { name: "leased", count: of("leased"), says: names, where: null },
    { name: "acknowledged", count: of("acknowledged"), says: names, where: null },
    { name: "excluded", count: byReadiness.excluded ?? 0, says: "not served; each says why", where: "excluded" },
  ];
}

const sum = (numbers: number[]): number => numbers.reduce((a, b) => a + b, 0);
