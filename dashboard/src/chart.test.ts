import { expect, test } from "vitest";

import { nearest, place, scaleOf, thinned } from "./chart";

test("a scale holds all values between round numbers", () => {
  expect(scaleOf([0.13, 0.87])).toEqual({ low: 0, high: 1, marks: [0, 0.2, 0.4, 0.6, 0.8, 1] });
  expect(scaleOf([-3, 12]).marks).toEqual([-5, 0, 5, 10, 15]);
  expect(scaleOf([7]).low).toBe(0);
  expect(scaleOf([0, 0])).toEqual({ low: 0, high: 1, marks: [0, 0.25, 0.5, 0.75, 1] });
  expect(scaleOf([])).toEqual({ low: 0, high: 1, marks: [0, 1] });
  for (const values of [[1e-9, 3e-9], [1e12, 3e12], [-0.001, 0.002], [99.9, 100.1]]) {
    const { low, high, marks } = scaleOf(values);
    expect(low).toBeLessThanOrEqual(Math.min(...values));
    expect(high).toBeGreaterThanOrEqual(Math.max(...values));
    expect(marks.length).toBeLessThan(9);
    expect(place(low, { low, high, marks })).toBe(0);
    expect(place(high, { low, high, marks })).toBe(1);
  }
});

test("long curves are thinned to means, and the nearest point is found", () => {
  const points = Array.from({ length: 1000 }, (_, x) => ({ x, y: x % 2 }));
  const few = thinned(points, 100);
  expect(few.length).toBe(100);
  expect(few.every(({ y }) => y === 0.5)).toBe(true);
  expect(thinned(points, 1000)).toEqual(points);
  expect(nearest(points, 41.2)?.x).toBe(41);
  expect(nearest([], 1)).toBe(null);
});
