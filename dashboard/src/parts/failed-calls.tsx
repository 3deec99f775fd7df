import { useQuery } from "@tanstack/react-query";
import { Link } from "wouter";

import { ApiError, get, type Page, type Schemas } from "../api/client";
import type { PoolEvent } from "../api/live";
import { useScopes } from "../api/scopes";
import { count, counted, cut, visible } from "../format";
import { DataTable } from "./data-table";
import { Problem } from "./problem";
import { When } from "./when";

const EVENTS = 1_000;
const TRAJECTORIES = 20;
const CALLS = 50;
const LONGEST = 400;

/** Calls without a reply, with their errors, and records that could not be stored, with why. */
export function FailedCalls() {
  const { bound, known } = useScopes();
  const stats = useQuery({ queryKey: ["live", "stats"], enabled: known && !bound, queryFn: ({ signal }) => get<Schemas["PoolStats"]>("stats", {}, signal) });
  const last = stats.data?.last_event;
  const failed = useQuery({
    queryKey: ["failed", stats.data?.failed_exchanges ?? null],
    enabled: last !== undefined,
    queryFn: ({ signal }) => lately(last!, signal),
  });
  const letters = useQuery({ queryKey: ["letters", stats.data?.dead_letters ?? null], enabled: stats.isSuccess, queryFn: ({ signal }) => get<Page<Schemas["DeadLetter"]>>("dead-letters", { limit: 100 }, signal) });
  if (bound) return <p className="empty">A key that is bound sees the calls of its own trajectories, on their pages.</p>;
  const fault = stats.error ?? failed.error ?? letters.error;
  if (fault !== null) return <Problem error={fault} again={() => void stats.refetch()} />;
  if (stats.data === undefined) return <p className="quiet">Loading</p>;
  return (
    <>
      <h2>Calls that failed</h2>
      <p className="quiet">
        {count(stats.data.failed_exchanges ?? 0)} of {count(stats.data.exchanges)} calls got no reply. Here are those among the newest {count(EVENTS)} events.
      </p>
      {failed.data !== undefined && (
        <DataTable
          label="Calls that failed"
          columns={["When", "Trajectory", "Model", "Error", "What it said"]}
          lines={failed.data.map((each) => ({
            key: each.exchange_id,
            cells: [
              <When key="at" at={each.created_at} />,
              <Link key="of" href={`/trajectories/${encodeURIComponent(each.trajectory_id)}`}>{visible(each.trajectory_id)}</Link>,
              visible(each.requested_model),
              <code key="code">{visible(String(each.error?.code ?? "error"))}</code>,
              visible(cut(String(each.error?.message ?? JSON.stringify(each.error)), LONGEST).text),
            ],
          }))}
          empty="None of the latest calls failed."
        />
      )}
      <h2>Could not be stored</h2>
      {(stats.data.dead_letters ?? 0) > 0 && <p className="quiet">{counted(stats.data.dead_letters!, "step or signal was", "steps and signals were")} set aside, as what they say cannot be. Who sent them was told the same.</p>}
      {letters.data !== undefined && (
        <DataTable
          label="Records that could not be stored"
          columns={["When", "Kind", "Trajectory", "Why", "Record"]}
          lines={letters.data.items.map((each) => ({
            key: String(each.sequence),
            cells: [
              <When key="at" at={each.at} />,
              each.kind ?? "step",
              visible(each.trajectory_id),
              visible(each.reason),
              <details key="record">
                <summary>{count(each.record.length)} characters</summary>
                <code>{visible(cut(each.record, 4 * LONGEST).text)}</code>
              </details>,
            ],
          }))}
          empty="Everything that came could be stored."
        />
      )}
    </>
  );
}

/** Failed calls among the newest events: of each trajectory its last calls are read. */
async function lately(last: number, signal: AbortSignal): Promise<Schemas["Exchange"][]> {
  const events = (await get<Page<PoolEvent>>("events", { after: Math.max(0, last - EVENTS), limit: EVENTS }, signal)).items;
  const named = new Set(events.filter((event) => event.kind === "exchange.failed").map((event) => String(event.data?.exchange_id)));
  const of = [...new Set(events.filter((event) => event.kind === "exchange.failed").map((event) => event.trajectory_id))].reverse().slice(0, TRAJECTORIES);
  const pages = await Promise.all(
    of.map((id) => get<Page<Schemas["Exchange"]>>(`trajectories/${encodeURIComponent(id ?? "")}/exchanges`, { order: "newest", limit: CALLS }, signal).catch((error) => {
      if (error instanceof ApiError && error.status === 404) return null; // It was deleted meanwhile.
      throw error;
    })),
  );
  return pages
    .flatMap((page) => page?.items ?? [])
    .filter((each) => named.has(each.exchange_id))
    .sort((a, b) => (b.created_at ?? 0) - (a.created_at ?? 0));
}
