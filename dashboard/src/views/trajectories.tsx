import { useInfiniteQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect, useMemo, useRef, useState } from "react";
import { useSearchParams } from "wouter";

import { ApiError, get, type Page, type Schemas } from "../api/client";
import { useEvents } from "../api/live";
import { chosen as chosenColumns, COLUMNS, serverSort, slim, sorted, sortOf, type Row } from "../columns";
import { count } from "../format";
import { Bulk } from "../parts/bulk";
import { FacetPanel, useFacets, valuesOf } from "../parts/facets";
import { Filter, REFUSED, useExplained } from "../parts/filter";
import { ColumnMenu, SavedMenu } from "../parts/list-menus";
import { Problem } from "../parts/problem";
import { ROW, TrajectoryTable } from "../parts/trajectory-table";
import "./trajectories.css";

const FIRST = 100;
const PAGE = 500;
const MOST = 50_000;
/** So many are loaded at once where the list is sorted here, so that what few match is sorted as a whole. */
const SORTED = 5_000;

/** All trajectories that match, the newest first. Whatever the list is like is in the address. */
export function Trajectories() {
  const [asked, setAsked] = useSearchParams();
  const client = useQueryClient();
  const where = asked.get("where") ?? "";
  const order = asked.get("order") === "oldest" ? "oldest" : "newest";
  const faceted = asked.get("facets") === "on";
  const acting = asked.get("actions") === "on";
  const sort = sortOf(asked.get("sort"));
  const byServer = serverSort(sort);
  const key = ["trajectories", where, byServer ?? order];
  const pages = useInfiniteQuery({
    queryKey: key,
    initialPageParam: null as string | null,
    structuralSharing: false,
    queryFn: async ({ pageParam, signal }) => {
      const limit = pageParam === null ? FIRST : PAGE;
      const page = await get<Page<Schemas["Trajectory"]>>("trajectories", { where, ...(byServer === null ? { order } : { sort: byServer }), limit, cursor: pageParam }, signal);
      return { ...page, items: page.items.map(slim) };
    },
    getNextPageParam: (last) => last.next_cursor,
  });
  const here = sort !== null && byServer === null;
  const loaded: readonly Row[] = useMemo(() => pages.data?.pages.flatMap((page) => page.items) ?? [], [pages.data]);
  const rows = useMemo(() => (here ? sorted(loaded, sort) : loaded), [loaded, here, sort?.id, sort?.down]);
  const columns = useMemo(() => chosenColumns(asked.get("columns")), [asked.get("columns")]);
  const facets = useFacets(where, faceted);
  const [completing, setCompleting] = useState(false);
  // Of all there is: a filter that is to be changed has only its own values.
  const offered = useFacets("", completing);
  const explained = useExplained(where);
  // What is wrong with the filter is told where it stands, be it that the list was refused first.
  const told = pages.error instanceof ApiError && pages.error.code === REFUSED && (explained.waits || pages.error.message === explained.error?.message);
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set());
  useEffect(() => setChosen(new Set()), [where]);
  const box = useRef<HTMLDivElement>(null);
  const again = () => void client.resetQueries({ queryKey: key });
  const news = useNews((order === "newest" || byServer !== null) && (box.current?.scrollTop ?? 0) < ROW, () => void pages.refetch(), pages.data?.pages.length ?? 0);
  const change = (name: string, value: string) =>
    setAsked((before) => {
      const next = new URLSearchParams(before);
      if (value === "") next.delete(name);
      else next.set(name, value);
      return next;
    });
  const sortBy = (id: string) => {
    if (id === "created") {
      change("sort", "");
      change("order", order === "newest" ? "oldest" : "");
    } else change("sort", sort?.id !== id ? `-${id}` : sort.down ? id : "");
  };
  const choose = (ids: readonly string[], on: boolean) => {
    const next = new Set(chosen);
    for (const id of ids) on ? next.add(id) : next.delete(id);
    setChosen(next);
    if (on && !acting) change("actions", "on");
  };
  const more = pages.hasNextPage && !pages.isFetching && !pages.isError && loaded.length < MOST ? () => void pages.fetchNextPage() : null;
  useEffect(() => {
    if (here && loaded.length < SORTED) more?.();
  });
  const scanned = pages.data?.pages.reduce((sum, page) => sum + (page.scanned ?? 0), 0) ?? 0;
  return (
    <>
      <h1>Trajectories</h1>
      <Filter where={where} set={(value) => change("where", value)} values={valuesOf(offered.data ?? facets.data)} wantValues={() => setCompleting(true)} />
      <div className="bar">
        <label>
          Order{" "}
          <select
            value={sort === null ? order : "sorted"}
            onChange={(event) =>
              setAsked((before) => {
                const next = new URLSearchParams(before);
                next.delete("sort");
                next.delete("order");
                if (event.target.value === "oldest") next.set("order", "oldest");
                return next;
              })
            }
          >
            <option value="newest">newest first</option>
            <option value="oldest">oldest first</option>
            {sort !== null && <option value="sorted">by {nameOf(sort.id)}</option>}
          </select>
        </label>
        <button type="button" aria-expanded={faceted} onClick={() => change("facets", faceted ? "" : "on")}>
          Facets
        </button>
        <button type="button" aria-expanded={acting} onClick={() => change("actions", acting ? "" : "on")}>
          Actions
        </button>
        <ColumnMenu columns={columns} set={(ids) => change("columns", ids)} />
        <SavedMenu query={asked.toString()} go={(query) => setAsked(new URLSearchParams(query))} />
        <span className="quiet" aria-live="polite">
          {count(loaded.length)} shown{pages.hasNextPage ? " so far" : ""}
          {sort !== null && `, sorted by ${nameOf(sort.id)}`}
          {here && pages.hasNextPage && " among these alone, as the server keeps no such order: filter so that fewer match"}
          {pages.isFetching && scanned > 0 && `, ${count(scanned)} looked at`}
          {pages.hasNextPage && loaded.length >= MOST && ": filter to see others"}
        </span>
        {news > 0 && (
          <button type="button" onClick={again}>
            {count(news)} new: show
          </button>
        )}
      </div>
      {faceted && <FacetPanel asked={facets} where={where} set={(value) => change("where", value)} />}
      {acting && (
        <Bulk ids={[...chosen]} where={where} loaded={loaded.length} all={() => setChosen(new Set(loaded.map((row) => row.trajectory_id)))} none={() => setChosen(new Set())} />
      )}
      {pages.isError && !told && <Problem error={pages.error} again={() => void pages.refetch()} />}
      {pages.isSuccess && rows.length === 0 && !pages.hasNextPage && (
        <p className="empty">
          {where === "" ? "There are none yet. They come as agents call the server; Lifecycle says how to begin." : "None matches. Take something out of the filter."}
        </p>
      )}
      <TrajectoryTable box={box} rows={rows} columns={columns} sort={sort ?? { id: "created", down: order === "newest" }} sortBy={sortBy} chosen={chosen} choose={choose} more={more} />
    </>
  );
}

const nameOf = (id: string): string => (COLUMNS.find((each) => each.id === id)?.name ?? id).toLowerCase();

/** How many came since the list was asked for; where only its beginning is looked at, it is asked for anew instead. */
function useNews(atBegin: boolean, again: () => void, pages: number): number {
  const [news, setNews] = useState(0);
  const waiting = useRef<number | null>(null);
  useEffect(() => setNews(0), [pages]);
  useEffect(() => () => window.clearTimeout(waiting.current ?? undefined), []);
  useEvents((events) => {
    const created = events.filter((event) => event.kind === "trajectory.created").length;
    const changed = events.length === 0 || events.some((event) => event.kind.startsWith("trajectory.") || event.kind === "reward.set");
    if (atBegin && pages <= 2) {
      if (changed && waiting.current === null) {
        waiting.current = window.setTimeout(() => {
          waiting.current = null;
          again();
        }, 300);
      }
    } else if (created > 0) setNews((before) => before + created);
  });
  return news;
}
