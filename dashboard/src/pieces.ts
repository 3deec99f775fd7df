/** Texts of ids, asked of the server in portions as they come into sight. */

import { useQueries } from "@tanstack/react-query";

import { ApiError, get, type Schemas } from "./api/client";

const PORTION = 256;

/** Ids in portions by their number, so that whatever is in sight asks for the same ones again. */
export function portionsOf(ids: readonly number[]): number[] {
  return [...new Set(ids.map((id) => Math.floor(id / PORTION)))].sort((one, other) => one - other);
}

/** The text of each id that is known by now. `missing`: the server has no tokenizer of the vocabulary. */
export function usePieces(vocabulary: string | null, ids: readonly number[]): { text: (id: number) => string | null; missing: boolean } {
  const asked = vocabulary === null ? [] : portionsOf(ids);
  const found = useQueries({
    queries: asked.map((portion) => ({
      queryKey: ["pieces", vocabulary, portion],
      staleTime: Infinity,
      retry: false,
      queryFn: ({ signal }: { signal: AbortSignal }) =>
        get<Schemas["Pieces"]>("pieces", { vocabulary, ids: Array.from({ length: PORTION }, (_, at) => portion * PORTION + at).join() }, signal),
    })),
  });
  const byPortion = new Map(asked.map((portion, at) => [portion, found[at]?.data?.pieces]));
  return {
    text: (id) => byPortion.get(Math.floor(id / PORTION))?.[id % PORTION] ?? null,
    missing: vocabulary === null || found.some((each) => each.error instanceof ApiError && each.error.status === 404),
  };
}
