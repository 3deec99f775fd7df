import { expect, it } from "vitest";

import { budgetsAround, worstForks } from "./saving";

const node = (id: number, parent: number, length: number, reason: string | null = null, hidden_tokens = 0) => ({ id, parent, start: 0, length, sequences: 1, ending: 0, hidden: 0, reason, hidden_tokens });

it("a fork costs what is below it, and other rollouts are none", () => {
  const nodes = [node(0, -1, 100), node(1, 0, 10), node(2, 0, 20, "template"), node(3, 2, 30, null, 5), node(4, 0, 70, "rollout"), node(5, 4, 7, "retry")];
  expect(worstForks(nodes, 9).map(({ node: { id }, tokens }) => [id, tokens])).toEqual([[2, 55], [5, 7]]);
  expect(worstForks(nodes, 1).length).toBe(1);
});

it("budgets hold the longest sequence", () => {
  expect(budgetsAround(8192, 3000)).toEqual([4096, 8192, 16384, 32768]);
  expect(budgetsAround(100, 1000)).toEqual([]);
});
