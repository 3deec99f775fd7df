/** Rates of what only grows, from samples of the pool's counters. */

import type { Schemas } from "./api/client";
import type { Point } from "./chart";

type Stats = Schemas["PoolStats"];
export type Sample = { at: number; steps: number; tokens: number; collected: number; complete: number; acknowledged: number };
export type Growing = Exclude<keyof Sample, "at">;

/** Seconds that samples are kept, and that a rate is of. */
export const KEPT = 900;
export const RECENT = 60;

const sum = (numbers: readonly number[]): number => numbers.reduce((a, b) => a + b, 0);

/** The counters at a moment in seconds. */
export function sampleOf(stats: Stats, at: number): Sample {
  const collected = sum(Object.values(stats.trajectories));
  return {
    at,
    steps: stats.steps,
    tokens: stats.tokens_sampled ?? 0,
    collected,
    complete: collected - (stats.trajectories.open ?? 0),
    acknowledged: sum(Object.values(stats.consumers ?? {}).map((each) => each.acknowledged ?? 0)),
  };
}

/** The samples with one more, the old ones gone. One that comes within a second of the last takes its place. */
export function withSample(samples: readonly Sample[], sample: Sample): Sample[] {
  const before = samples.filter((each) => each.at > sample.at - KEPT);
  const last = before[before.length - 1];
  // The first of a row stays, so that quick ones do not push the last away for ever.
  const close = last !== undefined && before.length > 1 && sample.at - before[before.length - 2]!.at < 1;
  return [...(close ? before.slice(0, -1) : before), sample];
}

/** How much a second over the last `seconds` of the samples; 0 where they say nothing. */
export function rateOf(samples: readonly Sample[], what: Growing, seconds = RECENT): number {
  const last = samples[samples.length - 1];
  const first = samples.find((each) => last !== undefined && each.at >= last.at - seconds);
  if (first === undefined || last === undefined || last.at - first.at < 1) return 0;
  return Math.max(0, (last[what] - first[what]) / (last.at - first.at));
}

/** How much a second from each sample to the next, at the moment of the latter. */
export function ratesAlong(samples: readonly Sample[], what: Growing): Point[] {
  return samples.slice(1).flatMap((sample, place) => {
    const before = samples[place]!;
    return sample.at - before.at < 0.5 ? [] : [{ x: sample.at, y: Math.max(0, (sample[what] - before[what]) / (sample.at - before.at)) }];
  });
}
