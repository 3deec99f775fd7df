/** Numbers that trainers tell of themselves, as curves along their steps. */

import type { PoolEvent } from "./api/live";
import type { Series } from "./chart";

export type Told = { run: string; kind: string; step: number; values: Readonly<Record<string, number | null>>; sequence: number };

/** What is shown first, where it is there. */
export const FIRST = ["train/loss", "train/reward", "evaluation/reward", "train/kl"];

/** What an event tells; null where it is of another kind, or not as it should be. */
export function toldBy(event: PoolEvent): Told | null {
  const { run, kind, step, values } = event.data ?? {};
  if (event.kind !== "metrics.added" || typeof run !== "string" || typeof step !== "number" || typeof values !== "object" || values === null) return null;
  return { run, kind: typeof kind === "string" ? kind : "train", step, values: values as Told["values"], sequence: event.sequence };
}

/** Runs, the one that told something last first. */
export function runsOf(told: readonly Told[]): string[] {
  const last = new Map<string, number>();
  for (const each of told) last.set(each.run, Math.max(last.get(each.run) ?? 0, each.sequence));
  return [...last].sort((a, b) => b[1] - a[1]).map(([run]) => run);
}

/** Curves by name (`train/loss`), one for each of the runs; of one step the latest counts. */
export function curvesOf(told: readonly Told[], runs: readonly string[]): Map<string, Series[]> {
  const found = new Map<string, Map<string, Map<number, number>>>();
  for (const each of [...told].sort((a, b) => a.sequence - b.sequence)) {
    if (!runs.includes(each.run)) continue;
    for (const [name, value] of Object.entries(each.values)) {
      const key = `${each.kind}/${name}`;
      const byRun = found.get(key) ?? new Map<string, Map<number, number>>();
      const points = byRun.get(each.run) ?? new Map<number, number>();
      if (typeof value === "number") points.set(each.step, value);
      else points.delete(each.step);
      found.set(key, byRun.set(each.run, points));
    }
  }
  const series = (byRun: Map<string, Map<number, number>>): Series[] =>
    runs.flatMap((run) => {
      const points = [...(byRun.get(run) ?? [])].sort((a, b) => a[0] - b[0]).map(([x, y]) => ({ x, y }));
      return points.length === 0 ? [] : [{ name: run, points }];
    });
  const names = [...found.keys()].sort((a, b) => rank(a) - rank(b) || a.localeCompare(b));
  return new Map(names.map((name) => [name, series(found.get(name)!)] as const).filter(([, curves]) => curves.length > 0));
}

const rank = (name: string): number => (FIRST.includes(name) ? FIRST.indexOf(name) : FIRST.length);
