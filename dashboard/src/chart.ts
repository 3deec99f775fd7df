/** Places of points and marks in a chart, apart from how they are drawn. */

export type Point = { x: number; y: number };
export type Series = { name: string; points: readonly Point[] };
export type Scale = { low: number; high: number; marks: number[] };

const STEPS = [1, 2, 2.5, 5, 10];

/** A range that holds all values and begins and ends at round numbers, about `wanted` of them marked. */
export function scaleOf(values: readonly number[], wanted = 4): Scale {
  const known = values.filter(Number.isFinite);
  if (known.length === 0) return { low: 0, high: 1, marks: [0, 1] };
  let low = known.reduce((a, b) => Math.min(a, b));
  let high = known.reduce((a, b) => Math.max(a, b));
  if (low === high) [low, high] = low === 0 ? [0, 1] : [Math.min(0, low), Math.max(0, high)];
  const rough = (high - low) / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * (STEPS.find((each) => each * power >= rough * 0.999) ?? 10);
  const first = Math.floor(low / step + 1e-9);
  const last = Math.ceil(high / step - 1e-9);
  const marks = Array.from({ length: last - first + 1 }, (_, place) => Number(((first + place) * step).toPrecision(12)));
  return { low: marks[0]!, high: marks[marks.length - 1]!, marks };
}

/** Where a value lies in a scale, from 0 to 1. */
export const place = (value: number, scale: Scale): number => (value - scale.low) / (scale.high - scale.low);

/** The point whose x is nearest; null of none. */
export function nearest(points: readonly Point[], x: number): Point | null {
  return points.reduce<Point | null>((best, each) => (best === null || Math.abs(each.x - x) < Math.abs(best.x - x) ? each : best), null);
}

/** At most `most` points: means of neighbours where there are more, so that a long curve stays one. */
export function thinned(points: readonly Point[], most: number): Point[] {
  if (points.length <= most) return [...points];
  const size = points.length / most;
  return Array.from({ length: most }, (_, part) => {
    const some = points.slice(Math.floor(part * size), Math.floor((part + 1) * size));
    const sum = some.reduce((a, b) => ({ x: a.x + b.x, y: a.y + b.y }));
    return { x: sum.x / some.length, y: sum.y / some.length };
  });
}
