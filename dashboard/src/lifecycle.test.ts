import { expect, it } from "vitest";

import { stagesOf } from "./lifecycle";
import { rateOf, ratesAlong, sampleOf, withSample } from "./rates";

const stats = {
  trajectories: { open: 2, finished: 5, failed: 1 },
  readiness: { open: 2, complete: 1, ready: 4, excluded: 1 },
  consumers: { a: { leased: 1, acknowledged: 2 }, b: { acknowledged: 3 } },
} as unknown as Parameters<typeof stagesOf>[0];

it("stages are counted from the counters", () => {
  expect(stagesOf(stats, { count: 5, whole: true }).map(({ name, count }) => [name, count])).toEqual([
    ["collected", 8],
    ["complete", 6],
    ["rewarded", 5],
    ["ready", 4],
    ["leased", 1],
    ["acknowledged", 5],
    ["excluded", 1],
  ]);
});

const at = (seconds: number, steps: number, tokens = 0) => ({ at: seconds, steps, tokens, collected: 0, complete: 0, acknowledged: 0 });

it("a rate is over the samples of the last minute, and none where they say nothing", () => {
  const samples = [at(0, 0, 1000), at(100, 10, 1000), at(110, 60, 900)];
  expect(rateOf(samples, "steps")).toBe(5);
  expect(rateOf(samples, "tokens")).toBe(0);
  expect(rateOf(samples.slice(0, 1), "steps")).toBe(0);
  expect(ratesAlong(samples, "steps")).toEqual([{ x: 100, y: 0.1 }, { x: 110, y: 5 }]);
});

it("samples are kept for a while, and quick ones are one", () => {
  let samples = [at(0, 0)];
  for (const [seconds, steps] of [[0.2, 1], [0.4, 2], [1.3, 3], [5, 4], [1000, 5]] as const) samples = withSample(samples, at(seconds, steps));
  expect(samples.map((each) => each.at)).toEqual([1000]);
  samples = [at(0, 0), at(0.2, 1), at(0.4, 2), at(5, 4)].reduce<ReturnType<typeof withSample>>((all, each) => withSample(all, each), []);
  expect(samples.map((each) => each.at)).toEqual([0, 0.4, 5]);
  expect(sampleOf(stats, 3)).toEqual({ at: 3, steps: undefined, tokens: 0, collected: 8, complete: 6, acknowledged: 5 });
});
