/** The stages that trajectories pass, from the counters of the pool. */

import type { Schemas } from "./api/client";
import type { Growing } from "./rates";

export type Stage = { name: string; count: number | null; says: string; path: string | null; grows: Growing | null };

/** How many have a reward, over the newest ones: no counter of the pool says it. */
export type Rewarded = { count: number; whole: boolean };

/** In order. `path` leads to those of a stage; null where no view shows it. `grows`: the counter that its rate is of. */
export function stagesOf(stats: Schemas["PoolStats"], rewarded: Rewarded | null = null): Stage[] {
  const byStatus = stats.trajectories;
  const byReadiness = stats.readiness ?? {};
  const all = sum(Object.values(byStatus));
  const open = byStatus.open ?? 0;
  const consumers = Object.entries(stats.consumers ?? {});
  const of = (state: "leased" | "acknowledged" | "available") => sum(consumers.map(([, each]) => each[state] ?? 0));
  const names = consumers.length === 1 ? `units of ${consumers[0]![0]}` : `units of ${consumers.length} consumers`;
  const ready = byReadiness.ready ?? 0;
  const waiting = byReadiness.complete ?? 0;
  const where = (text: string) => `/trajectories?where=${encodeURIComponent(text)}`;
  return [
    { name: "collected", count: all, says: `${open} still open`, path: "/trajectories", grows: "collected" },
    { name: "complete", count: all - open, says: "have ended", path: where("not open"), grows: "complete" },
    { name: "rewarded", count: rewarded?.count ?? null, says: `${waiting} ${waiting === 1 ? "has" : "have"} none, for methods without rewards alone${rewarded === null || rewarded.whole ? "" : "; counted over the newest"}`, path: where("has reward"), grows: null },
    { name: "ready", count: ready, says: consumers.length === 0 ? "may be served" : `${of("available")} units in the backlog`, path: where("ready"), grows: null },
    { name: "leased", count: of("leased"), says: names, path: "/consumption?state=leased", grows: null },
    { name: "acknowledged", count: of("acknowledged"), says: names, path: "/consumption?state=acked", grows: "acknowledged" },
    { name: "excluded", count: byReadiness.excluded ?? 0, says: "not served; each says why", path: where("excluded"), grows: null },
  ];
}

const sum = (numbers: number[]): number => numbers.reduce((a, b) => a + b, 0);
