import { useQuery } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { Link } from "wouter";

import { get, type Page, type Schemas } from "../api/client";
import { useScopes } from "../api/scopes";
import { alertsOf, type Alert } from "../alerts";
import { compact, count, decimal, visible } from "../format";
import { stagesOf, type Rewarded } from "../lifecycle";
import { BoundLifecycle } from "../parts/bound-lifecycle";
import { Chart } from "../parts/chart";
import { Command } from "../parts/command";
import { DataTable } from "../parts/data-table";
import { Excluded } from "../parts/excluded";
import { Problem } from "../parts/problem";
import { firstCallOf } from "../request";
import { rateOf, ratesAlong, sampleOf, withSample, type Sample } from "../rates";
import "./lifecycle.css";

type Stats = Schemas["PoolStats"];
const NEWEST = 200;

/** From collected to acknowledged: how much, how fast, what waits, and what is not as it should be. */
export function Lifecycle() {
  const { bound, known } = useScopes();
  const stats = useQuery({ queryKey: ["live", "stats"], enabled: known && !bound, queryFn: ({ signal }) => get<Stats>("stats", {}, signal), refetchInterval: 5_000 });
  const samples = useSamples(stats.data);
  const alerts = useAlerts(stats.data);
  const rewarded = useRewarded(stats.data);
  if (bound) return <BoundLifecycle />;
  if (stats.isPending) return <p className="quiet">Loading</p>;
  if (stats.isError) return <Problem error={stats.error} again={() => void stats.refetch()} />;
  const now = stats.data;
  if (Object.values(now.trajectories).reduce((a, b) => a + b, 0) === 0) return <Empty alerts={alerts} />;
  return (
    <>
      <h1>Lifecycle</h1>
      <Alerts alerts={alerts} />
      <ol className="stages flow" aria-label="From collected to acknowledged">
        {stagesOf(now, rewarded).map((stage) => (
          <li key={stage.name} className={stage.name === "excluded" ? "out" : undefined}>
            <span className="name">{stage.name}</span>
            {stage.path === null || stage.count === null ? (
              <strong>{stage.count === null ? "-" : compact(stage.count)}</strong>
            ) : (
              <Link href={stage.path}>
                <strong title={count(stage.count)}>{compact(stage.count)}</strong>
              </Link>
            )}
            {stage.grows !== null && <span className="rate">{decimal(Math.round(rateOf(samples, stage.grows) * 600) / 10)} a minute</span>}
            <span className="quiet">{stage.says}</span>
          </li>
        ))}
      </ol>
      <section className="cards" aria-label="Counters">
        <Card name="Steps" value={compact(now.steps)} says={`${decimal(rateOf(samples, "steps"))} a second now`} />
        <Card name="Sampled tokens" value={compact(now.tokens_sampled ?? 0)} says={`${decimal(rateOf(samples, "tokens"))} a second now`} />
        <Card name="Stored once" value={now.tokens_stored === 0 ? "-" : `${decimal(now.tokens_flat / now.tokens_stored)} x`} says={`${compact(now.tokens_flat)} tokens of sequences in ${compact(now.tokens_stored)}`} />
        <Card name="Rewards" value={compact(now.rewards)} says={`${count(feedbackOf(now))} of people and checks`} />
        <Card name="Batches" value={compact(Object.values(now.batches).reduce((a, b) => a + b, 0))} says={Object.entries(now.batches).map(([state, number]) => `${compact(number)} ${state}`).join(", ") || "none was leased"} />
        <Card name="Signals that wait" value={compact(now.awaited ?? 0)} says="for a step or trajectory that is not there yet" />
      </section>
      <Throughput samples={samples} />
      <Excluded all={now.readiness?.excluded ?? 0} />
      <h2>Policies</h2>
      <Policies stats={now} />
      {Object.keys(now.channels ?? {}).length > 1 && <Channels stats={now} />}
    </>
  );
}

function Alerts({ alerts }: { alerts: readonly Alert[] }) {
  if (alerts.length === 0) return null;
  return (
    <ul className="alerts" aria-label="Alerts">
      {alerts.map((alert) => (
        <li key={alert.id} className={alert.bad ? "bad" : "warm"}>
          <strong>{visible(alert.says)}</strong> <span>{alert.todo}</span> {alert.path !== null && <Link href={alert.path}>Look</Link>}
        </li>
      ))}
    </ul>
  );
}

function Throughput({ samples }: { samples: readonly Sample[] }) {
  const clock = (at: number) => new Date(at * 1000).toLocaleTimeString();
  if (samples.length < 3) return null;
  return (
    <div className="charts">
      <Chart title="Sampled tokens a second" x="at" xText={clock} series={[{ name: "tokens", points: ratesAlong(samples, "tokens") }]} />
      <Chart title="A second" x="at" xText={clock} series={[{ name: "trajectories ended", points: ratesAlong(samples, "complete") }, { name: "units acknowledged", points: ratesAlong(samples, "acknowledged") }]} />
    </div>
  );
}

function Policies({ stats }: { stats: Stats }) {
  return (
    <DataTable
      label="Policies"
      columns={["Model", "Run", { name: "Version", number: true }, { name: "Newest sampled with", number: true }, { name: "Lag", number: true }]}
      lines={Object.entries(stats.policies ?? {}).map(([model, policy]) => ({
        key: model,
        cells: [visible(model), visible(policy.run), count(policy.version), policy.sampled ?? "-", policy.lag ?? "-"],
      }))}
      empty={
        <>
          None is published yet. A trainer publishes its weights' version with <code>POST /api/v1/policy</code>; staleness counts from it.
        </>
      }
    />
  );
}

function Channels({ stats }: { stats: Stats }) {
  return (
    <>
      <h2>Channels</h2>
      <DataTable
        label="Channels"
        columns={["Channel", { name: "Trajectories", number: true }, { name: "Steps", number: true }]}
        lines={Object.entries(stats.channels ?? {}).map(([name, each]) => ({
          key: name,
          cells: [<Link key="name" href={`/trajectories?where=${encodeURIComponent(`channel == ${JSON.stringify(name)}`)}`}>{visible(name)}</Link>, count(each.trajectories ?? 0), count(each.steps ?? 0)],
        }))}
      />
    </>
  );
}

function Empty({ alerts }: { alerts: readonly Alert[] }) {
  const server = useQuery({ queryKey: ["server"], queryFn: ({ signal }) => get<Schemas["ServerStatus"]>("server", {}, signal) });
  // Who may not see the server's models fills in one.
  const model = server.data === undefined ? "MODEL" : server.data.models[0]?.name;
  const address = (server.data?.gateway_url ?? location.origin).replace(/\/+$/, "");
  return (
    <>
      <Alerts alerts={alerts} />
      <div className="empty">
        <h1>Nothing is collected yet</h1>
        <p>Give an agent this server as its LLM API, and each of its calls appears here.</p>
        {model === undefined ? (
          <p>
            This server has no models yet: <code>agentworld serve --upstream URL --model NAME</code> puts it before an engine. Where there is none, <code>agentworld engine --model smollm2</code> serves one on this machine and prints its URL.
          </p>
        ) : (
          <>
            <Command name="a first call" text={firstCallOf(address, model, server.data?.keys_required ?? false)} />
            <p>The base URL of OpenAI's clients and those that speak as they do:</p>
            <Command name="the base URL of OpenAI's clients" text={`${address}/v1`} />
            <p>The base URL of Anthropic's clients:</p>
            <Command name="the base URL of Anthropic's clients" text={address} />
          </>
        )}
        <p>Or have a whole run of an agent be one trajectory:</p>
        <Command name="the command that runs an agent" text={`agentworld exec --url ${location.origin} -- COMMAND`} />
        <p>
          Or bring what you have: <code>agentworld import auto PATH</code>. Or see the whole way at once: <code>agentworld demo</code>.
        </p>
      </div>
    </>
  );
}

function Card({ name, value, says }: { name: string; value: string; says: string }) {
  return (
    <div className="card">
      <span className="name">{name}</span>
      <strong>{value}</strong>
      <span className="quiet">{says}</span>
    </div>
  );
}

const feedbackOf = (stats: Stats): number => Object.values(stats.feedback ?? {}).reduce((a, b) => a + b, 0);

// Kept while the page is open, so that curves go on when one comes back to this view.
let kept: Sample[] = [];

function useSamples(stats: Stats | undefined): readonly Sample[] {
  const [samples, setSamples] = useState(kept);
  useEffect(() => {
    if (stats === undefined) return;
    kept = withSample(kept, sampleOf(stats, Date.now() / 1000));
    setSamples(kept);
  }, [stats]);
  return samples;
}

/** Alerts of what is known; what cannot be asked is left out, and the page itself says why. */
function useAlerts(stats: Stats | undefined): readonly Alert[] {
  const asked = { enabled: stats !== undefined, refetchInterval: 10_000 };
  const server = useQuery({ queryKey: ["server"], ...asked, queryFn: ({ signal }) => get<Schemas["ServerStatus"]>("server", {}, signal) });
  const gateway = useQuery({ queryKey: ["gateway"], ...asked, queryFn: ({ signal }) => get<Schemas["GatewayStatus"]>("gateway", {}, signal) });
  const leased = useQuery({ queryKey: ["leased"], ...asked, queryFn: ({ signal }) => get<Page<Schemas["BatchRecord"]>>("batches", { batch_state: "leased", limit: 200 }, signal) });
  const steps = useQuery({ queryKey: ["newest-steps"], ...asked, queryFn: ({ signal }) => get<Page<Schemas["Step"]>>("steps", { order: "newest", limit: NEWEST }, signal) });
  if (stats === undefined) return [];
  return alertsOf({ stats, server: server.data ?? null, gateway: gateway.data ?? null, leased: leased.data?.items ?? [], steps: steps.data?.items ?? [], now: Date.now() / 1000 });
}

function useRewarded(stats: Stats | undefined): Rewarded | null {
  const found = useQuery({ queryKey: ["scan", "rewarded"], enabled: stats !== undefined, refetchInterval: 15_000, queryFn: ({ signal }) => get<Schemas["Facets"]>("facets", {}, signal) });
  return found.data === undefined ? null : { count: found.data.looked - found.data.unrewarded, whole: found.data.whole };
}
