import { expect, it } from "vitest";

import { missingOf, needsOf, standOf, unitOf } from "./methods";

const sft = { name: "sft", unit: "trajectory" as const, needs: ["tokens"], rewarded: false, rollouts: 1, takes_text: true };
const grpo = { name: "grpo", unit: "group" as const, needs: ["tokens", "logprobs"], rewarded: true, rollouts: 2, takes_text: false };

it("says what a method needs, and that one needs no reward", () => {
  expect(needsOf(sft)).toBe("ids, or messages where the spec requires those, no reward");
  expect([unitOf(grpo), needsOf(grpo)]).toEqual(["group of 2 or more", "ids, log-probabilities, a reward"]);
  expect(needsOf({ ...sft, needs: ["tokens", "step_reward"] })).toBe("ids, or messages where the spec requires those, rewards of steps");
  expect(needsOf({ ...grpo, unit: "trajectory", rewarded: false, needs: ["annotation.teacher_logprobs"] })).toBe("the annotation teacher_logprobs, no reward");
  expect(needsOf({ ...sft, unit: "pair" })).toContain("one that is better than the other");
});

it("says what is missing and what to do, in other words than those of readiness", () => {
  const finding = { reason: "lacks" as const, need: "reward", units: 3, message: "3 of 4 trajectories lack a reward", hint: "Give rewards", example: "t" };
  const report = { satisfied: false, fitting: 1, looked_at: 4, unit: "trajectory" as const, findings: [finding] };
  expect(standOf(report).says).toBe("cannot be served yet");
  expect(missingOf(report)).toBe("3 of 4 trajectories lack a reward. Give rewards.");
  expect([standOf({ ...report, satisfied: true }).says, missingOf({ ...report, findings: [] })]).toEqual(["can be served", ""]);
  expect(standOf({ ...report, satisfied: null }).says).toContain("cannot be told");
});
