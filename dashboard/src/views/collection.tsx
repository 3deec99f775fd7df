import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { Link } from "wouter";

import { get, type Page, type Schemas } from "../api/client";
import { useConnection, useEvents, type PoolEvent } from "../api/live";
import { useScopes } from "../api/scopes";
import { joined, kindOf, saidBy, type FeedKind } from "../feed";
import { count, counted, decimal, visible } from "../format";
import { Engines } from "../parts/engines";
import { DataTable } from "../parts/data-table";
import { FailedCalls } from "../parts/failed-calls";
import { Problem } from "../parts/problem";
import { Tabs } from "../parts/tabs";
import { When } from "../parts/when";
import "./collection.css";

const MOST = 300;
const KINDS: readonly (FeedKind | "all")[] = ["all", "calls", "trajectories", "signals", "batches", "curation", "other"];

/** What comes in: events as they happen, runs that go on, agents, engines, and calls that failed. */
export function Collection() {
  return (
    <>
      <h1>Collection</h1>
      <Tabs
        label="Collection"
        tabs={[
          { id: "live", name: "Live", show: () => <Now /> },
          { id: "agents", name: "Agents", show: () => <Agents /> },
          { id: "engines", name: "Engines", show: () => <EnginesTab /> },
          { id: "errors", name: "Errors", show: () => <FailedCalls /> },
        ]}
      />
    </>
  );
}

function Now() {
  return (
    <div className="now">
      <section aria-label="In progress">
        <h2>In progress</h2>
        <Open />
      </section>
      <section aria-label="Feed">
        <h2>Feed</h2>
        <Feed />
      </section>
    </div>
  );
}

function Open() {
  const open = useQuery({ queryKey: ["live", "open"], queryFn: ({ signal }) => get<Page<Schemas["Trajectory"]>>("trajectories", { where: "open", order: "newest", limit: 50 }, signal) });
  if (open.isError) return <Problem error={open.error} again={() => void open.refetch()} />;
  if (open.isPending) return <p className="quiet">Loading</p>;
  return (
    <>
      <p className="quiet">
        {open.data.next_cursor === null ? counted(open.data.items.length, "trajectory has", "trajectories have") : `${count(open.data.items.length)} or more trajectories have`} not ended.
      </p>
      <DataTable
        label="Trajectories in progress"
        columns={["Trajectory", "Agent", { name: "Steps", number: true }, { name: "Tokens", number: true }, "Began"]}
        lines={open.data.items.map((each) => ({
          key: each.trajectory_id,
          cells: [<Id key="id" id={each.trajectory_id} />, visible(each.agent ?? "-"), count(each.step_count ?? 0), count((each.prompt_tokens ?? 0) + (each.response_tokens ?? 0)), <When key="at" at={each.created_at} />],
        }))}
        empty={
          <>
            No run is in progress. <code>agentworld exec --url {location.origin} -- COMMAND</code> makes one of any agent; <code>agentworld run CONFIG</code> runs many over tasks.
          </>
        }
      />
    </>
  );
}

/** Events of the pool, the newest first. It can be held, so that what is looked at does not move away. */
function Feed() {
  const { bound, known } = useScopes();
  const [shown, setShown] = useState<(typeof KINDS)[number]>("all");
  const [held, setHeld] = useState<PoolEvent[] | null>(null);
  const [came, setCame] = useState<PoolEvent[]>([]);
  const client = useQueryClient();
  const connection = useConnection();
  const before = useQuery({
    queryKey: ["feed"],
    enabled: known && !bound,
    // What came while this view was away nobody heard here.
    refetchOnMount: "always",
    queryFn: async ({ signal }) => {
      const { last_event } = await get<Schemas["PoolStats"]>("stats", {}, signal);
      return (await get<Page<PoolEvent>>("events", { after: Math.max(0, last_event - MOST), limit: MOST }, signal)).items;
    },
  });
  useEvents((events) => setCame((all) => joined(all, events, MOST)));
  useEffect(() => {
    // The stream tells what comes after it began, so what came between the first question and that is asked for once more.
    if (connection === "live") void client.invalidateQueries({ queryKey: ["feed"] });
  }, [client, connection]);
  const all = joined(before.data ?? [], came, MOST);
  const events = (held ?? all).filter((event) => shown === "all" || kindOf(event) === shown);
  return (
    <>
      <div className="bar">
        <label className="inline">
          Show{" "}
          <select value={shown} onChange={(event) => setShown(event.target.value as FeedKind)}>
            {KINDS.map((kind) => (
              <option key={kind}>{kind}</option>
            ))}
          </select>
        </label>
        <button type="button" aria-pressed={held !== null} onClick={() => setHeld(held === null ? all : null)}>
          {held === null ? "Hold" : `Go on, ${count(all.filter((event) => event.sequence > (held[0]?.sequence ?? 0)).length)} new`}
        </button>
      </div>
      {before.isError && <Problem error={before.error} again={() => void before.refetch()} />}
      {bound && <p className="quiet">This key hears of its channel or trajectory alone, from when this view was opened.</p>}
      {(before.isSuccess || bound) && events.length === 0 && <p className="empty">{bound && shown === "all" ? "Nothing has happened there since." : "Nothing of this kind has happened lately."}</p>}
      <ol className="feed" tabIndex={0} aria-label="Events, the newest first">
        {events.map((event) => (
          <li key={event.sequence} className={event.kind === "exchange.failed" || event.kind === "unit.poisoned" ? "bad" : undefined}>
            <When at={event.at} /> <strong>{event.kind}</strong> {event.trajectory_id != null && <Id id={event.trajectory_id} step={event.step_id ?? null} />} <span className="quiet">{visible(saidBy(event))}</span>
          </li>
        ))}
      </ol>
    </>
  );
}

function Agents() {
  const runs = useQuery({ queryKey: ["scan", "runs"], refetchInterval: 15_000, queryFn: ({ signal }) => get<Schemas["RunsReport"]>("runs", {}, signal) });
  if (runs.isPending) return <p className="quiet">Counting</p>;
  if (runs.isError) return <Problem error={runs.error} again={() => void runs.refetch()} />;
  const agents = new Map<string, { all: number; open: number; failed: number; abandoned: number; truncated: number; rewarded: number; reward: number; steps: number; tokens: number }>();
  for (const cell of runs.data.runs.flatMap((run) => run.cells ?? [])) {
    const name = cell.agent ?? "";
    const sum = agents.get(name) ?? { all: 0, open: 0, failed: 0, abandoned: 0, truncated: 0, rewarded: 0, reward: 0, steps: 0, tokens: 0 };
    sum.all += cell.trajectories ?? 0;
    sum.open += cell.open ?? 0;
    sum.failed += cell.failed ?? 0;
    sum.abandoned += cell.abandoned ?? 0;
    sum.truncated += cell.truncated ?? 0;
    sum.rewarded += cell.rewarded ?? 0;
    sum.reward += (cell.reward ?? 0) * (cell.rewarded ?? 0);
    sum.steps += cell.steps ?? 0;
    sum.tokens += cell.sampled_tokens ?? 0;
    agents.set(name, sum);
  }
  const numbers = ["Trajectories", "Open", "Failed", "Abandoned", "Truncated", "Steps each", "Sampled tokens each", "Mean reward"].map((name) => ({ name, number: true }));
  return (
    <>
      <p className="quiet">
        Over the newest {counted(runs.data.looked, "trajectory", "trajectories")}{runs.data.whole ? ", all that there are" : ", not all that there are"}.
      </p>
      <DataTable
        label="Agents"
        columns={["Agent", ...numbers]}
        lines={[...agents.entries()]
          .sort((a, b) => b[1].all - a[1].all)
          .map(([name, sum]) => ({
            key: name,
            cells: [
              name === "" ? <span key="none" className="quiet">no name was given</span> : <Link key="name" href={`/trajectories?where=${encodeURIComponent(`agent == ${JSON.stringify(name)}`)}`}>{visible(name)}</Link>,
              ...[sum.all, sum.open, sum.failed, sum.abandoned, sum.truncated].map(count),
              decimal(sum.steps / sum.all),
              count(Math.round(sum.tokens / sum.all)),
              sum.rewarded === 0 ? "-" : decimal(sum.reward / sum.rewarded),
            ],
          }))}
        empty={
          <>
            No agent has called yet. Give one this server as its LLM API: <code>agentworld exec --url {location.origin} -- COMMAND</code>.
          </>
        }
      />
    </>
  );
}

function EnginesTab() {
  const { bound, known } = useScopes();
  const server = useQuery({ queryKey: ["server"], enabled: known && !bound, refetchInterval: 5_000, queryFn: ({ signal }) => get<Schemas["ServerStatus"]>("server", {}, signal) });
  const gateway = useQuery({ queryKey: ["live", "gateway"], enabled: known && !bound, refetchInterval: 5_000, queryFn: ({ signal }) => get<Schemas["GatewayStatus"]>("gateway", {}, signal) });
  if (bound) return <p className="empty">A key that is bound to a channel or a trajectory does not see engines.</p>;
  if (server.isError) return <Problem error={server.error} again={() => void server.refetch()} />;
  if (gateway.isError) return <Problem error={gateway.error} again={() => void gateway.refetch()} />;
  if (server.data === undefined) return <p className="quiet">Loading</p>;
  return (
    <>
      {gateway.data?.paused && <p className="problem">The gateways are paused: calls wait until they are resumed, as after a new version of the weights.</p>}
      <Engines models={server.data.models} />
      {gateway.data !== undefined && (
        <>
          <h2>Workers of gateways</h2>
          <DataTable
            label="Workers"
            columns={["Worker", { name: "Calls in flight", number: true }, "Seen"]}
            lines={gateway.data.workers.map((each) => ({ key: each.worker, cells: [<code key="id">{visible(each.worker)}</code>, count(each.in_flight), <When key="at" at={each.seen_at} />] }))}
            empty="No worker of a gateway on this pool is alive."
          />
        </>
      )}
    </>
  );
}

function Id({ id, step = null }: { id: string; step?: string | null }) {
  return <Link href={`/trajectories/${encodeURIComponent(id)}${step === null ? "" : `?step=${encodeURIComponent(step)}`}`}>{visible(id)}</Link>;
}
