/** Rates of what only grows, from samples of the last minute. */

export type Sample = { at: number; steps: number; tokens: number };

/** How much a second, over the samples; 0 where they say nothing. `at` is in seconds. */
export function rateOf(samples: readonly Sample[], what: "steps" | "tokens"): number {
  const first = samples[0];
  const last = samples[samples.length - 1];
  if (first === undefined || last === undefined || last.at - first.at < 1) return 0;
  return Math.max(0, (last[what] - first[what]) / (last.at - first.at));
}
