import { expect, it } from "vitest";

import { byVersion, isShort, ofPolicies, reward, success, tokens, type Run } from "./runs";

const point = (version: number, rewarded: number, successes: number, policy_run = "demo") => ({ policy_run, version, trajectories: rewarded + 1, rewarded, successes, reward: rewarded === 0 ? null : successes / rewarded, sampled_tokens: 10 * (rewarded + 1) });
const runs = [
  { run: "a", versions: [point(2, 4, 3), point(1, 4, 1)], times: [] },
  { run: "b", versions: [point(2, 12, 3), point(3, 0, 0), point(7, 2, 2, "other")], times: [] },
] as unknown as Run[];

it("a run has its own curve, in the order of its versions, without those that say nothing", () => {
  expect(byVersion(runs, (run) => run.run ?? "", success)).toEqual([
    { name: "a", points: [{ x: 1, y: 0.25 }, { x: 2, y: 0.75 }] },
    { name: "b", points: [{ x: 2, y: 0.25 }, { x: 7, y: 1 }] },
  ]);
});

it("all runs together have one curve for each run of the policy, weighed by what was sampled", () => {
  expect(ofPolicies(runs, success)).toEqual([
    { name: "demo", points: [{ x: 1, y: 0.25 }, { x: 2, y: 6 / 16 }] },
    { name: "other", points: [{ x: 7, y: 1 }] },
  ]);
  expect(ofPolicies(runs, reward)[0]!.points[1]).toEqual({ x: 2, y: 6 / 16 });
  expect(ofPolicies(runs, tokens)[0]!.points.map((each) => each.y)).toEqual([10, 10, 10]);
});

it("knows when runs alone make no curve", () => {
  expect([isShort(runs), isShort([{ run: "c", versions: [point(4, 1, 1)] } as unknown as Run])]).toEqual([false, true]);
});
