import { useQuery } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { Link } from "wouter";

import { get, type Schemas } from "../api/client";
import { compact, count, decimal } from "../format";
import { stagesOf } from "../lifecycle";
import { Problem } from "../parts/problem";
import { rateOf, type Sample } from "../rates";

type Stats = Schemas["PoolStats"];

export function Lifecycle() {
  const stats = useQuery({ queryKey: ["live", "stats"], queryFn: ({ signal }) => get<Stats>("stats", {}, signal), refetchInterval: 5_000 });
  const samples = useSamples(stats.data);
  if (stats.isPending) return <p className="quiet">Loading</p>;
  if (stats.isError) return <Problem error={stats.error} again={() => void stats.refetch()} />;
  const now = stats.data;
  const trajectories = Object.values(now.trajectories).reduce((a, b) => a + b, 0);
  const policies = Object.entries(now.policies ?? {});
  if (trajectories === 0) return <Empty />;
  return (
    <>
      <h1>Lifecycle</h1>
      <ol className="stages" aria-label="From collected to acknowledged">
        {stagesOf(now).map((stage) => (
          <li key={stage.name} className={stage.name === "excluded" ? "out" : undefined}>
            <span className="name">{stage.name}</span>
            {stage.where === null ? (
              <strong>{compact(stage.count)}</strong>
            ) : (
              <Link href={`/trajectories${stage.where === "" ? "" : `?where=${encodeURIComponent(stage.where)}`}`}>
                <strong title={count(stage.count)}>{compact(stage.count)}</strong>
              </Link>
            )}
            <span className="quiet">{stage.says}</span>
          </li>
        ))}
      </ol>
      <section className="cards">
        <Card name="Steps" value={compact(now.steps)} says={`${decimal(rateOf(samples, "steps"))} a second now`} />
        <Card
          name="Sampled tokens"
          value={compact(now.tokens_sampled)}
          says={`${decimal(rateOf(samples, "tokens"))} a second now`}
        />
        <Card
          name="Stored once"
          value={now.tokens_stored === 0 ? "-" : `${decimal(now.tokens_flat / now.tokens_stored)} x`}
          says={`${compact(now.tokens_flat)} tokens of sequences in ${compact(now.tokens_stored)}`}
        />
        <Card name="Rewards" value={compact(now.rewards)} says={`${count(feedbackOf(now))} of people`} />
        <Alert name="Failed calls" value={now.failed_exchanges} says="calls that ended with an error" />
        <Alert name="Could not be stored" value={now.dead_letters} says="records set aside, with their reasons" />
      </section>
      <h2>Policies</h2>
      {policies.length === 0 ? (
        <p className="quiet">
          None is published yet. A trainer publishes its weights' version with <code>POST /api/v1/policy</code>; staleness counts
          from it.
        </p>
      ) : (
        <table>
          <thead>
            <tr>
              <th>Model</th>
              <th>Run</th>
              <th className="number">Version</th>
              <th className="number">Newest sampled with</th>
              <th className="number">Lag</th>
            </tr>
          </thead>
          <tbody>
            {policies.map(([model, policy]) => (
              <tr key={model}>
                <td>{model}</td>
                <td>{policy.run}</td>
                <td className="number">{policy.version}</td>
                <td className="number">{policy.sampled ?? "-"}</td>
                <td className="number">{policy.lag ?? "-"}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </>
  );
}

function Empty() {
  return (
    <div className="empty">
      <h1>Nothing is collected yet</h1>
      <p>Give an agent this server as its LLM API, and each of its calls appears here.</p>
      <pre>
        <code>agentworld exec --url {location.origin} -- COMMAND</code>
      </pre>
      <p>
        Or bring what you have: <code>agentworld import auto PATH</code>. Or see the whole way at once: <code>agentworld demo</code>.
      </p>
    </div>
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

/** A number that should be zero. */
function Alert({ name, value, says }: { name: string; value: number; says: string }) {
  return (
    <div className={`card ${value > 0 ? "alert" : ""}`}>
      <span className="name">{name}</span>
      <strong>{count(value)}</strong>
      <span className="quiet">{value > 0 ? says : "none"}</span>
    </div>
  );
}

const feedbackOf = (stats: Stats): number => Object.values(stats.feedback ?? {}).reduce((a, b) => a + b, 0);

function useSamples(stats: Stats | undefined): Sample[] {
  const [samples, setSamples] = useState<Sample[]>([]);
  useEffect(() => {
    if (stats === undefined) return;
    const sample = { at: Date.now() / 1000, steps: stats.steps, tokens: stats.tokens_sampled };
    setSamples((before) => [...before.filter((each) => each.at > sample.at - 60), sample]);
  }, [stats]);
  return samples;
}
