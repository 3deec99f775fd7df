import { expect, test } from "vitest";

import type { Schemas } from "./api/client";
import { pairsOf, siblingsOf } from "./pairs";

const step = (step_id: string, parent_step_id: string | null, fork_reason: string | null = null) => ({ step_id, trajectory_id: "t", parent_step_id, fork_reason }) as unknown as Schemas["Step"];

test("each pair comes once, early ones first", () => {
  expect(pairsOf([1, 2, 3])).toEqual([[1, 2], [1, 3], [2, 3]]);
  expect(pairsOf([1])).toEqual([]);
});

test("replies to one prompt are found, and others are left apart", () => {
  const steps = [step("a", null), step("b", "a"), step("b2", "a", "parallel"), step("c", "b"), step("s", "a", "subagent"), step("c2", "b", "history_rewritten"), step("a2", null, "retry")];
  expect(siblingsOf(steps).map((group) => group.map((each) => each.step_id))).toEqual([["a", "a2"], ["b", "b2"]]);
});
