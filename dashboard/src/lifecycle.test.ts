import { expect, it } from "vitest";

import { stagesOf } from "./lifecycle";
import { rateOf } from "./rates";

const stats = {
  trajectories: { open: 2, finished: 5, failed: 1 },
  readiness: { open: 2, complete: 1, ready: 4, excluded: 1 },
  consumers: { a: { leased: 1, acknowledged: 2 }, b: { acknowledged: 3 } },
} as unknown as Parameters<typeof stagesOf>[0];

it("stages are counted from the counters", () => {
  expect(stagesOf(stats).map(({ name, count }) => [name, count])).toEqual([
    ["collected", 8],
    ["complete", 6],
    ["ready", 4],
    ["leased", 1],
    ["acknowledged", 5],
    ["excluded", 1],
  ]);
});

it("a rate is over the samples, and none where they say nothing", () => {
  const samples = [
    { at: 100, steps: 10, tokens: 1000 },
    { at: 110, steps: 60, tokens: 900 },
  ];
  expect(rateOf(samples, "steps")).toBe(5);
  expect(rateOf(samples, "tokens")).toBe(0);
  expect(rateOf(samples.slice(0, 1), "steps")).toBe(0);
});
