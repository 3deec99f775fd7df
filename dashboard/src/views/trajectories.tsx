import { useInfiniteQuery } from "@tanstack/react-query";
import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useRef, useState, type KeyboardEvent } from "react";
import { useLocation, useSearchParams } from "wouter";

import { get, type Page, type Schemas } from "../api/client";
import { useEvents } from "../api/live";
import { count, decimal, visible } from "../format";
import { Problem } from "../parts/problem";
import { When } from "../parts/when";

type Trajectory = Schemas["Trajectory"];
const ROW = 34;
const PAGE = 100;

/** All trajectories that match, the newest first. The filter and the order are in the address. */
export function Trajectories() {
  const [asked, setAsked] = useSearchParams();
  const where = asked.get("where") ?? "";
  const order = asked.get("order") === "oldest" ? "oldest" : "newest";
  const pages = useInfiniteQuery({
    queryKey: ["trajectories", where, order],
    initialPageParam: null as string | null,
    queryFn: ({ pageParam, signal }) =>
      get<Page<Trajectory>>("trajectories", { where, order, limit: PAGE, cursor: pageParam }, signal),
    getNextPageParam: (last) => last.next_cursor,
  });
  const rows = pages.data?.pages.flatMap((page) => page.items) ?? [];
  const box = useRef<HTMLDivElement>(null);
  const news = useNews(order === "newest" && (box.current?.scrollTop ?? 0) < ROW, () => void pages.refetch(), pages.data?.pages.length ?? 0);
  const change = (name: string, value: string) => {
    const next = new URLSearchParams(asked);
    if (value === "") next.delete(name);
    else next.set(name, value);
    setAsked(next);
  };
  return (
    <>
      <h1>Trajectories</h1>
      <Filter key={where} where={where} set={(value) => change("where", value)} />
      <div className="bar">
        <label>
          Order{" "}
          <select value={order} onChange={(event) => change("order", event.target.value === "oldest" ? "oldest" : "")}>
            <option value="newest">newest first</option>
            <option value="oldest">oldest first</option>
          </select>
        </label>
        <span className="quiet" aria-live="polite">
          {count(rows.length)}
          {pages.hasNextPage ? " so far" : ""} shown
        </span>
        {news > 0 && (
          <button type="button" onClick={() => void pages.refetch()}>
            {count(news)} new: show
          </button>
        )}
      </div>
      {pages.isError && <Problem error={pages.error} again={() => void pages.refetch()} />}
      {pages.isSuccess && rows.length === 0 && !pages.hasNextPage && (
        <p className="empty">{where === "" ? "There are none yet." : "None matches. Take something out of the filter."}</p>
      )}
      <Table
        box={box}
        rows={rows}
        more={pages.hasNextPage && !pages.isFetching ? () => void pages.fetchNextPage() : null}
        waiting={pages.isFetchingNextPage}
      />
    </>
  );
}

function Filter({ where, set }: { where: string; set: (value: string) => void }) {
  const [text, setText] = useState(where);
  return (
    <form
      role="search"
      onSubmit={(event) => {
        event.preventDefault();
        set(text.trim());
      }}
    >
      <input
        type="search"
        aria-label="Filter, in the where language"
        placeholder="reward >= 0.5 and complete and created_at > now - 2h"
        spellCheck={false}
        value={text}
        onChange={(event) => setText(event.target.value)}
      />
      <button>Filter</button>
    </form>
  );
}

const COLUMNS = ["Trajectory", "Status", "Readiness", "Reward", "Steps", "Tokens", "Group", "Agent", "Channel", "Created"];

type TableProps = {
  box: React.RefObject<HTMLDivElement | null>;
  rows: Trajectory[];
  more: (() => void) | null;
  waiting: boolean;
};

function Table({ box, rows, more, waiting }: TableProps) {
  const [, go] = useLocation();
  const [at, setAt] = useState(0);
  const virtual = useVirtualizer({ count: rows.length, getScrollElement: () => box.current, estimateSize: () => ROW, overscan: 20 });
  const shown = virtual.getVirtualItems();
  const last = shown[shown.length - 1]?.index ?? 0;
  useEffect(() => {
    if (more !== null && last >= rows.length - PAGE / 2) more();
  }, [last, rows.length, more]);
  const press = (event: KeyboardEvent) => {
    const step = { j: 1, ArrowDown: 1, k: -1, ArrowUp: -1, PageDown: 20, PageUp: -20 }[event.key];
    if (step !== undefined) {
      const next = Math.max(0, Math.min(rows.length - 1, at + step));
      event.preventDefault();
      setAt(next);
      virtual.scrollToIndex(next);
    } else if (event.key === "Enter" && rows[at] !== undefined) go(addressOfRow(rows[at]));
  };
  return (
    <div
      ref={box}
      className="rows"
      role="grid"
      aria-rowcount={rows.length}
      aria-label="Trajectories"
      aria-activedescendant={rows.length > 0 ? `row-${at}` : undefined}
      tabIndex={0}
      onKeyDown={press}
    >
      <div role="row" className="row head">
        {COLUMNS.map((name) => (
          <span key={name} role="columnheader">
            {name}
          </span>
        ))}
      </div>
      <div style={{ height: virtual.getTotalSize(), position: "relative" }}>
        {shown.map((item) => (
          <Row
            key={item.key}
            id={`row-${item.index}`}
            top={item.start}
            chosen={item.index === at}
            row={rows[item.index]!}
            open={() => go(addressOfRow(rows[item.index]!))}
          />
        ))}
      </div>
      {waiting && <p className="quiet">Loading more</p>}
    </div>
  );
}

function Row({ id, top, chosen, row, open }: { id: string; top: number; chosen: boolean; row: Trajectory; open: () => void }) {
  const texts: [string, string][] = [
    [row.status, row.status],
    [row.readiness, row.excluded_reason === null || row.excluded_reason === undefined ? row.readiness : `${row.readiness}: ${row.excluded_reason}`],
    [row.reward === null || row.reward === undefined ? "-" : decimal(row.reward), "reward"],
    [count(row.step_count ?? 0), "steps"],
    [count((row.prompt_tokens ?? 0) + (row.response_tokens ?? 0)), "tokens of prompts and replies"],
    [row.group_id ?? "-", row.group_id ?? ""],
    [row.agent ?? "-", row.agent ?? ""],
    [row.channel ?? "-", row.channel ?? ""],
  ];
  return (
    <div id={id} role="row" className={`row ${chosen ? "chosen" : ""}`} aria-selected={chosen} style={{ transform: `translateY(${top}px)` }} onClick={open}>
      <span role="gridcell">
        <a
          href={`/dashboard${addressOfRow(row)}`}
          tabIndex={-1}
          onClick={(event) => {
            // A click that opens another tab is the browser's.
            event.stopPropagation();
            if (event.metaKey || event.ctrlKey || event.shiftKey) return;
            event.preventDefault();
            open();
          }}
        >
          {visible(row.trajectory_id)}
        </a>
      </span>
      {texts.map(([text, title], number) => (
        <span key={number} role="gridcell" title={visible(title)} className={number === 1 ? `readiness ${row.readiness}` : undefined}>
          {visible(text)}
        </span>
      ))}
      <span role="gridcell">
        <When at={row.created_at} />
      </span>
    </div>
  );
}

const addressOfRow = (row: Trajectory): string => `/trajectories/${encodeURIComponent(row.trajectory_id)}`;

/** How many came since the list was asked for; where only its beginning is looked at, it is asked for anew instead. */
function useNews(atBegin: boolean, again: () => void, pages: number): number {
  const [news, setNews] = useState(0);
  const waiting = useRef<number | null>(null);
  useEffect(() => setNews(0), [pages]);
  useEffect(() => () => window.clearTimeout(waiting.current ?? undefined), []);
  useEvents((events) => {
    const created = events.filter((event) => event.kind === "trajectory.created").length;
    const changed = events.some((event) => event.kind.startsWith("trajectory.") || event.kind === "reward.set");
    if (atBegin && pages === 1) {
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
