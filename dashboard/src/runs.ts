/** Curves of runs along the versions of the policy and along time. */

import type { Schemas } from "./api/client";
import type { Point, Series } from "./chart";

export type Run = Pick<Schemas["RunReport"], "run" | "versions" | "times">;
type Version = Schemas["VersionPoint"];
type Read = (point: Tally) => number | null;
type Tally = Pick<Version, "trajectories" | "rewarded" | "reward" | "successes" | "sampled_tokens">;

/** What curves can show of some trajectories; null where there is nothing to say. */
export const success: Read = (point) => ((point.rewarded ?? 0) === 0 ? null : (point.successes ?? 0) / point.rewarded!);
export const reward: Read = (point) => point.reward ?? null;
export const tokens: Read = (point) => ((point.trajectories ?? 0) === 0 ? null : (point.sampled_tokens ?? 0) / point.trajectories!);

const pointsOf = <T extends Tally>(all: readonly T[], x: (one: T) => number, read: Read): Point[] =>
  all.flatMap((one) => (read(one) === null ? [] : [{ x: x(one), y: read(one)! }])).sort((a, b) => a.x - b.x);

/** One curve for each run along versions. */
export const byVersion = (runs: readonly Run[], nameOf: (run: Run) => string, read: Read): Series[] =>
  runs.map((run) => ({ name: nameOf(run), points: pointsOf(run.versions ?? [], (point) => point.version, read) }));

/** One curve for each run along time. */
export const byTime = (runs: readonly Run[], nameOf: (run: Run) => string, read: Read): Series[] =>
  runs.map((run) => ({ name: nameOf(run), points: pointsOf(run.times ?? [], (point) => point.begin, read) }));

/** All runs together: one curve for each run of the policy, of all that its versions sampled wherever. */
export function ofPolicies(runs: readonly Run[], read: Read): Series[] {
  const found = new Map<string, Map<number, Tally>>();
  for (const point of runs.flatMap((run) => run.versions ?? [])) {
    const versions = found.get(point.policy_run) ?? new Map<number, Tally>();
    const before = versions.get(point.version);
    versions.set(point.version, before === undefined ? point : joined(before, point));
    found.set(point.policy_run, versions);
  }
  return [...found].map(([name, versions]) => ({ name, points: pointsOf([...versions].map(([version, point]) => ({ ...point, version })), (point) => point.version, read) }));
}

function joined(one: Tally, other: Tally): Tally {
  const add = (name: "trajectories" | "rewarded" | "successes" | "sampled_tokens") => (one[name] ?? 0) + (other[name] ?? 0);
  const rewarded = add("rewarded");
  const sum = (one.reward ?? 0) * (one.rewarded ?? 0) + (other.reward ?? 0) * (other.rewarded ?? 0);
  return { trajectories: add("trajectories"), rewarded, successes: add("successes"), sampled_tokens: add("sampled_tokens"), reward: rewarded === 0 ? null : sum / rewarded };
}

/** Whether the versions of these runs alone make no curve, so that all together say more. */
export const isShort = (runs: readonly Run[]): boolean => new Set(runs.flatMap((run) => (run.versions ?? []).map((each) => each.version))).size < 2;
