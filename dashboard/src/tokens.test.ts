import { describe, expect, it } from "vitest";

import { portionsOf } from "./pieces";
import { cellsOf, idAt, lengthOf, shadeIn, shadeOf, sharedLength, spreadOf } from "./tokens";

const step = { prompt_ids: [1, 2, 3], response_ids: [4, 5], response_mask: [1, 0], response_logprobs: [-0.5, null] };

describe("cells", () => {
  it("are prompt and reply in order, with what was sampled", () => {
    expect(lengthOf(step)).toBe(5);
    expect(cellsOf(step, 2, 9)).toEqual([
      { id: 3, place: 2, sampled: false, reply: false, logprob: null },
      { id: 4, place: 3, sampled: true, reply: true, logprob: -0.5 },
      { id: 5, place: 4, sampled: false, reply: true, logprob: null },
    ]);
    expect(cellsOf({}, 0, 16)).toEqual([]);
  });

  it("only those asked for are made", () => {
    const long = { prompt_ids: Array.from({ length: 200_000 }, (_, id) => id) };
    expect(cellsOf(long, 199_990, 200_100).map((cell) => cell.id)).toEqual(long.prompt_ids.slice(199_990));
  });
});

describe("where a prompt departs", () => {
  it("is found in the prompt, in the reply, or not at all", () => {
    expect(sharedLength(step, [1, 2, 3, 4, 5, 6])).toBe(5);
    expect(sharedLength(step, [1, 2, 3, 4, 9, 6])).toBe(4);
    expect(sharedLength(step, [1, 7])).toBe(1);
    expect(sharedLength(step, [1, 2])).toBe(2);
    expect(sharedLength({}, [1])).toBe(0);
    expect([0, 3, 4, 5].map((place) => idAt(step, place))).toEqual([1, 4, 5, null]);
  });
});

it("shades grow with the surprise", () => {
  const shades = [0, -0.01, -0.05, -0.5, -1, -4, -6, -Infinity].map(shadeOf);
  expect(shades).toEqual([0, 0, 1, 2, 3, 4, 5, 5]);
});

it("values of an annotation are spread over the shades", () => {
  const values = [0.5, null, 2.5, Number.NaN, 1.5];
  const spread = spreadOf(values);
  expect(spread).toEqual({ low: 0.5, high: 2.5 });
  expect(values.map((each) => shadeIn(spread, each))).toEqual([0, null, 5, null, 3]);
  expect(shadeIn(spread, undefined)).toBeNull();
  expect(shadeIn(spreadOf([1, 1]), 1)).toBe(0);
  expect(spreadOf([null])).toEqual({ low: 0, high: 0 });
});

it("texts of ids are asked for in portions that do not move", () => {
  expect(portionsOf([0, 255, 256, 3, 151_643])).toEqual([0, 1, 592]);
  expect(portionsOf([])).toEqual([]);
});
