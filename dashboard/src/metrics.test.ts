import { expect, it } from "vitest";

import type { PoolEvent } from "./api/live";
import { curvesOf, runsOf, toldBy } from "./metrics";

const event = (sequence: number, run: string, step: number, values: Record<string, number | null>, kind = "train"): PoolEvent => ({ sequence, kind: "metrics.added", at: 1, data: { run, step, values, kind } });

const told = [event(1, "a", 1, { loss: 2, kl: null }), event(2, "a", 0, { loss: 3 }), event(3, "b", 0, { reward: 0.5 }, "evaluation"), event(4, "a", 1, { loss: 1 })].map((each) => toldBy(each)!);

it("curves are by name and run, and of one step the latest counts", () => {
  expect(runsOf(told)).toEqual(["a", "b"]);
  const curves = curvesOf(told, ["a", "b"]);
  expect([...curves.keys()]).toEqual(["train/loss", "evaluation/reward"]);
  expect(curves.get("train/loss")).toEqual([{ name: "a", points: [{ x: 0, y: 3 }, { x: 1, y: 1 }] }]);
  expect(curvesOf(told, ["b"]).has("train/loss")).toBe(false);
});

it("what is no number of a run is passed over", () => {
  expect(toldBy({ sequence: 1, kind: "policy.set", at: 1, data: { run: "a", step: 1, values: {} } })).toBe(null);
  expect(toldBy({ sequence: 1, kind: "metrics.added", at: 1, data: { run: "a", step: "1", values: {} } })).toBe(null);
});
