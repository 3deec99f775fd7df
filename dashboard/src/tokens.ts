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

/** A shade from 0 (certain) to 5 (a surprise), by the log-probability in nats. */
export function shadeOf(logprob: number): number {
  const bounds = [-0.01, -0.1, -0.7, -2, -5];
  const found = bounds.findIndex((bound) => logprob >= bound);
  return found < 0 ? bounds.length : found;
}
