import { keepPreviousData, useQuery } from "@tanstack/react-query";

const FIRST = 1_000;

type Settings = { enabled?: boolean; again?: number | false; keep?: boolean };

/** What a look at the newest trajectories tells: first of few, which takes the server a tenth of the time, then of as many
 * as it looks at. `ask` is called with how many; null for the server's own limit. */
export function useScan<T>(key: readonly unknown[], ask: (limit: number | null, signal: AbortSignal) => Promise<T>, { enabled = true, again = false, keep = false }: Settings = {}) {
  const first = useQuery({ queryKey: ["scan-first", ...key], enabled, gcTime: 30_000, staleTime: 30_000, queryFn: ({ signal }) => ask(FIRST, signal) });
  const all = useQuery({
    queryKey: ["scan", ...key],
    enabled: enabled && first.isFetched,
    staleTime: 30_000,
    refetchInterval: again,
    ...(keep ? { placeholderData: keepPreviousData } : {}),
    queryFn: ({ signal }) => ask(null, signal),
  });
  const known = all.isPlaceholderData ? (first.data ?? all.data) : (all.data ?? first.data);
  return { data: known, error: all.error, isError: all.isError, isPending: known === undefined && !all.isError, isSuccess: known !== undefined, whole: all.isSuccess && !all.isPlaceholderData, refetch: all.refetch };
}
