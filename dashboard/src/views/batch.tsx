import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Link } from "wouter";

import { get, type Schemas } from "../api/client";
import { count, decimal, span, visible } from "../format";
import { DataTable } from "../parts/data-table";
import { Facts } from "../parts/facts";
import { Problem } from "../parts/problem";
import { StepLink } from "../parts/step-link";
import { When } from "../parts/when";
import { unitsOf } from "./consumption";

const PAGE = 100;
const FEW = 4;

/** What exactly was in a batch: its units with their members, and every reward as it was at the lease. */
export function BatchView({ id }: { id: string }) {
  const batch = useQuery({ queryKey: ["live", "batch", id], queryFn: ({ signal }) => get<Schemas["BatchRecord"]>(`batches/${encodeURIComponent(id)}`, {}, signal) });
  const [most, setMost] = useState(PAGE);
  if (batch.isPending) return <p className="quiet">Loading</p>;
  if (batch.isError) return <Problem error={batch.error} again={() => void batch.refetch()} />;
  const { data } = batch;
  const units = data.units ?? [];
  const ended = data.ended_at ?? null;
  return (
    <>
      <p>
        <Link href={`/consumption?consumer=${encodeURIComponent(data.consumer)}`}>Consumption of {visible(data.consumer)}</Link>
      </p>
      <h1>Batch {visible(data.batch_id)}</h1>
      <Facts
        items={[
          ["State", <span key="state" className={`readiness ${data.state}`}>{data.state}</span>],
          ["Consumer", visible(data.consumer)],
          ["Method", `${visible(data.method)}, ${unitsOf(data.unit_count ?? units.length, data.unit)} from channel ${visible(data.channel)}`],
          ["Leased", <When key="at" at={data.created_at} />],
          [data.state === "leased" ? "Goes back" : "Ended", <When key="end" at={ended ?? data.deadline} />],
          ["Held", data.created_at == null || ended === null ? "still" : span(ended - data.created_at)],
          ["Asked for with", data.spec == null ? "not kept" : <pre key="spec"><code>{visible(JSON.stringify(data.spec, null, 1))}</code></pre>],
          ["Tokens", <Link key="tree" href={`/optimization?batch=${encodeURIComponent(data.batch_id)}`}>its token tree</Link>],
        ]}
      />
      <h2>Units</h2>
      <DataTable
        label="Units"
        columns={["Unit", "What was in it", "Rewards at the lease"]}
        lines={units.slice(0, most).map((unit) => ({
          key: unit.key,
          cells: [
            visible(unit.key),
            <Members key="members" unit={unit} />,
            <Rewards key="rewards" unit={unit} />,
          ],
        }))}
        empty="An earlier version leased it, which did not keep what was in it."
      />
      {units.length > most && (
        <button type="button" onClick={() => setMost(most + PAGE)}>
          Show {count(Math.min(PAGE, units.length - most))} more of {count(units.length - most)}
        </button>
      )}
    </>
  );
}

function Members({ unit }: { unit: Schemas["BatchUnit"] }) {
  const trajectories = unit.trajectories ?? [];
  const steps = unit.steps ?? [];
  if (trajectories.length + steps.length === 0) return <span className="quiet">not kept</span>;
  return (
    <ul className="members">
      {trajectories.map((id) => (
        <li key={id}>
          <Link href={`/trajectories/${encodeURIComponent(id)}`}>{visible(id)}</Link>
        </li>
      ))}
      {steps.map((id) => (
        <li key={id}>
          <StepLink id={id} />
        </li>
      ))}
    </ul>
  );
}

/** Every reward as it was at the lease; of many the mean first. */
function Rewards({ unit }: { unit: Schemas["BatchUnit"] }) {
  const told = Object.entries(unit.rewards ?? {});
  if (told.length === 0) return "none";
  const list = (
    <ul className="members">
      {told.map(([target, rewards]) => (
        <li key={target}>{visible(`${target}: ${Object.entries(rewards).map(([name, value]) => `${name} ${decimal(value)}`).join(", ")}`)}</li>
      ))}
    </ul>
  );
  if (told.length <= FEW) return list;
  return (
    <details>
      <summary>{visible(meansOf(told.map(([, rewards]) => rewards)))}</summary>
      {list}
    </details>
  );
}

/** The mean of each name over those that have it. */
function meansOf(all: readonly Record<string, number>[]): string {
  return [...new Set(all.flatMap((rewards) => Object.keys(rewards)))]
    .map((name) => {
      const values = all.flatMap((rewards) => rewards[name] ?? []);
      return `${name}: mean ${decimal(values.reduce((a, b) => a + b, 0) / values.length)} of ${count(values.length)}`;
    })
    .join(", ");
}
