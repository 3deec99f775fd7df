import { expect, it } from "vitest";

import { boxesOf, type Node } from "./icicle";

const node = (id: number, parent: number, start: number, length: number, sequences: number): Node =>
  ({ id, parent, start, length, sequences }) as Node;

// 10 shared tokens, then two sequences of which one forks again; one more tree of 5 tokens.
const nodes = [node(0, -1, 0, 10, 3), node(1, 0, 10, 10, 2), node(2, 1, 20, 20, 1), node(3, 0, 10, 5, 1), node(4, -1, 0, 5, 1)];

it("nodes lie along the tokens, as high as the sequences through them", () => {
  const boxes = boxesOf(nodes, null);
  expect(boxes.map(({ left, width, top, height }) => [left, width, top, height])).toEqual([
    [0, 0.25, 0, 0.75],
    [0.25, 0.25, 0, 0.5],
    [0.5, 0.5, 0, 0.25],
    [0.25, 0.125, 0.5, 0.25],
    [0, 0.125, 0.75, 0.25],
  ]);
});

it("a node fills the whole when it is zoomed to", () => {
  const boxes = boxesOf(nodes, 1);
  expect(boxes.map((box) => box.node.id)).toEqual([1, 2]);
  expect(boxes.map(({ left, width, top, height }) => [left, width, top, height])).toEqual([
    [0, 1 / 3, 0, 1],
    [1 / 3, 2 / 3, 0, 0.5],
  ]);
});

it("no box leaves its parent's height", () => {
  const boxes = boxesOf(nodes, null);
  const by = new Map(boxes.map((box) => [box.node.id, box]));
  for (const box of boxes) {
    const parent = by.get(box.node.parent);
    if (parent === undefined) continue;
    expect(box.top).toBeGreaterThanOrEqual(parent.top - 1e-9);
    expect(box.top + box.height).toBeLessThanOrEqual(parent.top + parent.height + 1e-9);
    expect(box.left).toBeCloseTo(parent.left + parent.width);
  }
  expect(boxesOf([], null)).toEqual([]);
});
