import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useMemo, useRef, useState, type KeyboardEvent, type PointerEvent, type RefObject } from "react";
import { useLocation } from "wouter";

import { type Column, type Preview, type Row, type Sort } from "../columns";
import { visible } from "../format";
import { distinct } from "../prompts";
import { savedWidths, saveWidths } from "../saved";
import { usePreviews } from "./use-previews";
import { When } from "./when";

export const ROW = 34;
const AHEAD = 150;
const LEAST = 50;
/** Columns of which the list is asked for itself. */
const PREVIEWED = new Set(["prompt", "review"]);
const SELECT = 34;

type Props = {
  box: RefObject<HTMLDivElement | null>;
  rows: readonly Row[];
  columns: readonly Column[];
  sort: Sort | null;
  sortBy: (id: string) => void;
  chosen: ReadonlySet<string>;
  choose: (ids: readonly string[], on: boolean) => void;
  more: (() => void) | null;
};

export const addressOf = (row: Row): string => `/trajectories/${encodeURIComponent(row.trajectory_id)}`;

/** Rows of trajectories, as many as there are: only those in sight are drawn. */
export function TrajectoryTable({ box, rows, columns, sort, sortBy, chosen, choose, more }: Props) {
  const [, go] = useLocation();
  const [at, setAt] = useState(0);
  const [widths, setWidths] = useState(savedWidths);
  const virtual = useVirtualizer({ count: rows.length, getScrollElement: () => box.current, estimateSize: () => ROW, overscan: 25 });
  const shown = virtual.getVirtualItems();
  const last = shown[shown.length - 1]?.index ?? 0;
  useEffect(() => {
    if (more !== null && last >= rows.length - AHEAD) more();
  }, [last, rows.length, more]);
  const inSight = shown.flatMap((item) => rows[item.index] ?? []);
  const previews = usePreviews(inSight, columns.some((column) => PREVIEWED.has(column.id)));
  const prompts = distinct(inSight.flatMap((row) => previews.get(row.trajectory_id)?.prompt ?? []));
  const across = useMemo(() => [SELECT, ...columns.map((each) => widths[each.id] ?? each.width)], [columns, widths]);
  const grid = { gridTemplateColumns: across.map((width) => `${width}px`).join(" "), width: across.reduce((sum, width) => sum + width + 10, 20) };
  const all = rows.length > 0 && chosen.size >= rows.length;
  const toggle = (row: Row | undefined, to: number, range: boolean) => {
    if (row === undefined) return;
    const on = !chosen.has(row.trajectory_id);
    const [from, until] = range ? [Math.min(at, to), Math.max(at, to)] : [to, to];
    choose(rows.slice(from, until + 1).map((each) => each.trajectory_id), on);
    setAt(to);
  };
  const press = (event: KeyboardEvent) => {
    if (event.target !== event.currentTarget || event.ctrlKey || event.metaKey || event.altKey) return;
    const step = { j: 1, ArrowDown: 1, k: -1, ArrowUp: -1, PageDown: 20, PageUp: -20, Home: -rows.length, End: rows.length, J: 1, K: -1 }[event.key];
    const extends_ = event.key === "J" || event.key === "K" || (event.shiftKey && event.key.startsWith("Arrow"));
    if (step !== undefined) {
      const next = Math.max(0, Math.min(rows.length - 1, at + step));
      event.preventDefault();
      if (extends_) choose([rows[at], rows[next]].flatMap((row) => row?.trajectory_id ?? []), true);
      setAt(next);
      virtual.scrollToIndex(next);
    } else if (event.key === "x" || event.key === " ") {
      event.preventDefault();
      toggle(rows[at], at, false);
    } else if (event.key === "Enter" && rows[at] !== undefined) go(addressOf(rows[at]));
  };
  const resize = (id: string, width: number) => {
    const next = { ...widths, [id]: Math.max(LEAST, Math.min(900, Math.round(width))) };
    setWidths(next);
    saveWidths(next);
  };
  return (
    <div
      ref={box}
      className="rows"
      role="grid"
      aria-rowcount={rows.length + 1}
      aria-label="Trajectories"
      aria-multiselectable
      aria-activedescendant={rows.length > 0 ? `row-${at}` : undefined}
      tabIndex={0}
      onKeyDown={press}
    >
      <div role="row" className="row head" style={grid} aria-rowindex={1}>
        <span role="columnheader" className="check">
          <AllBox all={all} some={chosen.size > 0} choose={(on) => choose(rows.map((each) => each.trajectory_id), on)} />
        </span>
        {columns.map((column) => (
          <Head key={column.id} column={column} sort={sort} sortBy={sortBy} width={widths[column.id] ?? column.width} resize={resize} />
        ))}
      </div>
      <div role="rowgroup" style={{ height: virtual.getTotalSize(), position: "relative" }}>
        {shown.map((item) => {
          const row = rows[item.index]!;
          return (
            <Line
              key={row.trajectory_id}
              at={item.index}
              top={item.start}
              grid={grid}
              current={item.index === at}
              chosen={chosen.has(row.trajectory_id)}
              row={row}
              columns={columns}
              preview={previews.get(row.trajectory_id)}
              prompts={prompts}
              open={() => go(addressOf(row))}
              toggle={(range) => toggle(row, item.index, range)}
            />
          );
        })}
      </div>
    </div>
  );
}

function AllBox({ all, some, choose }: { all: boolean; some: boolean; choose: (on: boolean) => void }) {
  const box = useRef<HTMLInputElement>(null);
  useEffect(() => {
    if (box.current !== null) box.current.indeterminate = some && !all;
  }, [all, some]);
  return <input ref={box} type="checkbox" aria-label="Choose all that are loaded" title={all ? "Choose none" : "Choose all that are loaded"} checked={all} onChange={() => choose(!all)} />;
}

type HeadProps = { column: Column; sort: Sort | null; sortBy: (id: string) => void; width: number; resize: (id: string, width: number) => void };

function Head({ column, sort, sortBy, width, resize }: HeadProps) {
  const way = sort?.id === column.id ? (sort.down ? "descending" : "ascending") : undefined;
  const drag = (event: PointerEvent) => {
    const begun = event.clientX;
    const handle = event.currentTarget as HTMLElement;
    handle.setPointerCapture(event.pointerId);
    handle.onpointermove = (moved) => resize(column.id, width + moved.clientX - begun);
    handle.onpointerup = () => (handle.onpointermove = null);
  };
  return (
    <span role="columnheader" aria-sort={way} className="column-head">
      {column.by === null ? (
        <span className="column-name">{column.name}</span>
      ) : (
        <button type="button" title={column.server !== undefined || column.id === "created" ? "Sort" : "Sort what is loaded: the server keeps no such order"} onClick={() => sortBy(column.id)}>
          {column.name}
          {way !== undefined && <span aria-hidden> {way === "descending" ? "↓" : "↑"}</span>}
        </button>
      )}
      <span
        role="separator"
        aria-orientation="vertical"
        aria-label={`Width of ${column.name}`}
        aria-valuenow={width}
        aria-valuemin={LEAST}
        aria-valuemax={900}
        tabIndex={0}
        className="handle"
        onPointerDown={drag}
        onKeyDown={(event) => {
          const by = { ArrowLeft: -10, ArrowRight: 10 }[event.key];
          if (by === undefined) return;
          event.preventDefault();
          resize(column.id, width + by);
        }}
      />
    </span>
  );
}

type LineProps = {
  at: number;
  top: number;
  grid: { gridTemplateColumns: string; width: number };
  current: boolean;
  chosen: boolean;
  row: Row;
  columns: readonly Column[];
  preview: Preview | undefined;
  /** What is shown of each prompt. */
  prompts: ReadonlyMap<string, string>;
  open: () => void;
  toggle: (range: boolean) => void;
};

function Line({ at, top, grid, current, chosen, row, columns, preview, prompts, open, toggle }: LineProps) {
  return (
    <div
      id={`row-${at}`}
      role="row"
      aria-rowindex={at + 2}
      aria-selected={chosen}
      className={`row ${current ? "chosen" : ""}`}
      style={{ ...grid, transform: `translateY(${top}px)` }}
      onClick={open}
    >
      <span
        role="gridcell"
        className="check"
        title={chosen ? "Chosen" : "Choose"}
        onClick={(event) => {
          event.stopPropagation();
          toggle(event.shiftKey);
        }}
      >
        {chosen ? "☑" : "☐"}
      </span>
      {columns.map((column) => {
        if (column.id === "trajectory") return <IdCell key={column.id} row={row} open={open} />;
        const text = visible(column.text(row, preview));
        const shown = column.id === "prompt" ? visible(prompts.get(preview?.prompt ?? "") ?? text) : column.id === "group" ? <bdi>{text}</bdi> : text;
        return (
          <span key={column.id} role="gridcell" title={column.says === undefined ? text : visible(column.says(row))} className={classOf(column.id, row, preview)}>
            {column.id === "created" ? <When at={row.created_at} /> : shown}
          </span>
        );
      })}
    </div>
  );
}

const classOf = (id: string, row: Row, preview: Preview | undefined): string | undefined =>
  id === "readiness" ? `readiness ${row.readiness}` : id === "review" ? `review ${preview?.review ?? ""}` : id === "group" ? "id" : undefined;

/** Ids of a run begin alike, so what does not fit is cut off there; all of it is copied with it, and shown on hover. */
function IdCell({ row, open }: { row: Row; open: () => void }) {
  return (
    <span role="gridcell" className="id" title={visible(row.trajectory_id)}>
      <a
        href={`/dashboard${addressOf(row)}`}
        tabIndex={-1}
        onClick={(event) => {
          // A click that opens another tab is the browser's.
          event.stopPropagation();
          if (event.metaKey || event.ctrlKey || event.shiftKey) return;
          event.preventDefault();
          open();
        }}
      >
        <bdi>{visible(row.trajectory_id)}</bdi>
      </a>
    </span>
  );
}
