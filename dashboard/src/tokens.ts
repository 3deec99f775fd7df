/** A step's sequence as cells: prompt and reply by id, what was sampled, and how likely it was. */

export type Cell = { id: number; place: number; sampled: boolean; reply: boolean; logprob: number | null };

type Tokens = {
  prompt_ids?: number[] | null;
  response_ids?: number[] | null;
  response_mask?: number[] | null;
  response_logprobs?: (number | null)[] | null;
};

export const lengthOf = (step: Tokens): number => (step.prompt_ids?.length ?? 0) + (step.response_ids?.length ?? 0);

/** The cells from `begin` to before `end`; a sequence of 200,000 is never made whole. */
export function cellsOf(step: Tokens, begin: number, end: number): Cell[] {
  const prompt = step.prompt_ids ?? [];
  const reply = step.response_ids ?? [];
  const cells: Cell[] = [];
  for (let place = begin; place < Math.min(end, prompt.length + reply.length); place++) {
    const at = place - prompt.length;
    cells.push(
      at < 0
        ? { id: prompt[place]!, place, sampled: false, reply: false, logprob: null }
        : {
            id: reply[at]!,
            place,
            sampled: (step.response_mask?.[at] ?? 1) > 0,
            reply: true,
            logprob: step.response_logprobs?.[at] ?? null,
          },
    );
  }
  return cells;
}

/** Where a prompt departs from the whole sequence of the step before it; its length where it goes on from all of that. */
export function sharedLength(before: Tokens, prompt: readonly number[]): number {
  const first = before.prompt_ids ?? [];
  const second = before.response_ids ?? [];
  let at = 0;
  while (at < prompt.length && at < first.length + second.length) {
    if (prompt[at] !== (at < first.length ? first[at] : second[at - first.length])) return at;
    at++;
  }
  return at;
}

/** The id at a place of a sequence; null behind its end. */
export const idAt = (step: Tokens, place: number): number | null => {
  const prompt = step.prompt_ids ?? [];
  return (place < prompt.length ? prompt[place] : step.response_ids?.[place - prompt.length]) ?? null;
};

/** A shade from 0 (certain) to 5 (a surprise), by the log-probability in nats. */
export function shadeOf(logprob: number): number {
  const bounds = [-0.01, -0.1, -0.7, -2, -5];
  const found = bounds.findIndex((bound) => logprob >= bound);
  return found < 0 ? bounds.length : found;
}

/** The range of values that colours are spread over. */
export type Spread = { low: number; high: number };

export function spreadOf(values: readonly (number | null)[]): Spread {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) {
    if (value === null || !Number.isFinite(value)) continue;
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return low <= high ? { low, high } : { low: 0, high: 0 };
}

/** A shade from 0 (the lowest) to 5 (the highest); null for what has no value. */
export function shadeIn({ low, high }: Spread, value: number | null | undefined): number | null {
  if (value === null || value === undefined || !Number.isFinite(value)) return null;
  if (high <= low) return 0;
  return Math.min(5, Math.floor((6 * (value - low)) / (high - low)));
}
