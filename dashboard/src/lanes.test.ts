import { expect, it } from "vitest";

import { branchesOf } from "./branches";
import { lanesOf, measuresOf } from "./lanes";

const step = (step_id: string, parent_step_id: string | null = null, fork_reason: string | null = null) => ({ step_id, parent_step_id, fork_reason });
const drawn = (...steps: ReturnType<typeof step>[]) => lanesOf(branchesOf(steps));

it("one branch takes one lane", () => {
  expect(drawn(step("a"), step("b", "a"), step("c", "b"))).toEqual([
    { lane: 0, from: null, through: [], goesOn: true, begins: true },
    { lane: 0, from: null, through: [], goesOn: true, begins: false },
    { lane: 0, from: null, through: [], goesOn: false, begins: false },
  ]);
});

it("a fork leaves the lane of its parent, and passes what goes on", () => {
  const [, , fork, main] = drawn(step("a"), step("b", "a"), step("r", "a", "retry"), step("c", "b"));
  expect(fork).toEqual({ lane: 1, from: 0, through: [0], goesOn: false, begins: true });
  expect(main).toEqual({ lane: 0, from: null, through: [], goesOn: false, begins: false });
});

it("a lane whose branch ended is taken again", () => {
  const lanes = drawn(step("a"), step("s", null, "subagent"), step("b", "a"), step("u", null, "subagent"), step("c", "b"));
  expect(lanes.map((each) => each.lane)).toEqual([0, 1, 0, 1, 0]);
  expect(lanes[1]!.from).toBeNull();
});

it("never gives two branches one lane at a time", () => {
  let seed = 7;
  const random = (below: number) => (seed = (seed * 1103515245 + 12345) % 2 ** 31) % below;
  const steps = Array.from({ length: 300 }, (_, number) => step(`s${number}`, number === 0 || random(10) === 0 ? null : `s${random(number)}`));
  const placed = branchesOf(steps);
  const lanes = lanesOf(placed);
  const owner = new Map<number, number>();
  lanes.forEach((each, row) => {
    const branch = placed[row]!.branch;
    expect(each.through).not.toContain(each.lane);
    if (!each.begins) expect(owner.get(each.lane)).toBe(branch);
    owner.set(each.lane, branch);
  });
});

it("measures are shares of the largest", () => {
  expect(measuresOf([{ latency_ms: 50, prompt_length: 30, response_length: 10 }, { latency_ms: 100, prompt_length: 60, response_length: 20 }])).toEqual([
    { latency: 0.5, prompt: 0.375, reply: 0.125 },
    { latency: 1, prompt: 0.75, reply: 0.25 },
  ]);
  expect(measuresOf([{}])).toEqual([{ latency: 0, prompt: 0, reply: 0 }]);
});
