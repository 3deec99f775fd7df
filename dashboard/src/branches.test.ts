import { expect, it } from "vitest";

import { branchesOf } from "./branches";

const step = (step_id: string, parent_step_id: string | null, fork_reason: string | null = null) => ({ step_id, parent_step_id, fork_reason });

it("a step goes on on its parent's branch, a second one of the same parent begins another", () => {
  const steps = [step("a", null), step("b", "a"), step("c", "a", "retry"), step("d", "b"), step("e", "c"), step("s", null, "subagent")];
  expect(branchesOf(steps).map(({ step, branch, fork }) => [step.step_id, branch, fork])).toEqual([
    ["a", 0, null],
    ["b", 0, null],
    ["c", 1, "retry"],
    ["d", 0, null],
    ["e", 1, null],
    ["s", 2, "subagent"],
  ]);
});

it("a parent that is not there begins a branch", () => {
  expect(branchesOf([step("b", "gone"), step("c", "gone")]).map((each) => each.branch)).toEqual([0, 1]);
});
