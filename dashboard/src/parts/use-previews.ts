import { useEffect, useRef, useState } from "react";

import { get, type Page } from "../api/client";
import { useEvents } from "../api/live";
import type { Preview, Row } from "../columns";

const PORTION = 50;
const PAUSE = 60;

/** Previews of the rows in sight, by id. They are asked for once the list stands still, and anew where a row changed
 * since, or was decided. */
export function usePreviews(rows: readonly Row[], wanted: boolean): ReadonlyMap<string, Preview> {
  const [known, setKnown] = useState<ReadonlyMap<string, Preview>>(new Map());
  // What each row was like as its preview was asked for.
  const asked = useRef(new Map<string, string>());
  const [stale, setStale] = useState(0);
  useEvents((events) => {
    const decided = events.filter((event) => event.kind === "decision.set" && asked.current.delete(event.trajectory_id ?? ""));
    if (decided.length > 0) setStale((before) => before + 1);
  });
  const missing = wanted ? rows.filter((row) => asked.current.get(row.trajectory_id) !== likeness(row)) : [];
  const named = missing.map((row) => row.trajectory_id).join();
  useEffect(() => {
    if (missing.length === 0) return;
    const timer = window.setTimeout(() => {
      for (const row of missing) asked.current.set(row.trajectory_id, likeness(row));
      for (let at = 0; at < missing.length; at += PORTION) void ask(missing.slice(at, at + PORTION));
    }, PAUSE);
    return () => window.clearTimeout(timer);
  }, [named, stale]);
  const ask = async (portion: readonly Row[]) => {
    // What the server has no time for, or does not answer, is asked for again as the list moves.
    const left = new Set(portion.map((row) => row.trajectory_id));
    try {
      const { items } = await get<Page<Preview>>("previews", { trajectory_ids: [...left].join() });
      for (const each of items) left.delete(each.trajectory_id);
      setKnown((before) => new Map([...before, ...items.map((each) => [each.trajectory_id, each] as const)]));
    } catch {
      // The list itself tells what is wrong with the server.
    }
    for (const id of left) asked.current.delete(id);
  };
  return known;
}

const likeness = (row: Row): string => `${Math.min(1, row.step_count ?? 0)} ${row.readiness} ${row.excluded_reason ?? ""}`;
