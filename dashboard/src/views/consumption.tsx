import { useQuery } from "@tanstack/react-query";
import { Link, useSearchParams } from "wouter";

import { get, type Page, type Schemas } from "../api/client";
import { useScopes } from "../api/scopes";
import { count, counted, span, visible } from "../format";
import { Bars, Chart } from "../parts/chart";
import { DataTable } from "../parts/data-table";
import { Poisoned } from "../parts/poisoned";
import { Problem } from "../parts/problem";
import { Readiness } from "../parts/readiness";
import { When } from "../parts/when";

type BatchRecord = Schemas["BatchRecord"];
const STATES = ["leased", "acked", "released", "expired"];

/** Who takes batches and which, how old what they take is, and why the rest is not taken. */
export function Consumption() {
  const [asked, setAsked] = useSearchParams();
  const { bound, known } = useScopes();
  const stats = useQuery({ queryKey: ["live", "stats"], enabled: known && !bound, queryFn: ({ signal }) => get<Schemas["PoolStats"]>("stats", {}, signal) });
  if (stats.isPending && !bound) return <p className="quiet">Loading</p>;
  if (stats.isLoadingError) return <Problem error={stats.error} again={() => void stats.refetch()} />;
  const consumers = Object.entries(stats.data?.consumers ?? {});
  const consumer = asked.get("consumer") ?? (consumers.length === 1 ? consumers[0]![0] : null);
  const state = STATES.find((each) => each === asked.get("state")) ?? null;
  const change = (name: string, value: string | null) => {
    const next = new URLSearchParams(asked);
    if (value === null) next.delete(name);
    else next.set(name, value);
    setAsked(next);
  };
  return (
    <>
      <h1>Consumption</h1>
      {stats.isError && <Problem error={stats.error} again={() => void stats.refetch()} />}
      {bound ? (
        <p className="quiet">This key is bound to a channel or a trajectory, so it sees the batches of its channel and no counters of consumers.</p>
      ) : consumers.length === 0 ? (
        <p className="empty">
          Nobody has leased a batch yet. A trainer does with <code>pool.consumer("policy").stream(...)</code>, or try <code>agentworld train CONFIG</code>. What a method would be handed can be asked here before.
        </p>
      ) : (
        <>
          <Consumers consumers={consumers} chosen={consumer} choose={(name) => change("consumer", name)} />
          {consumer === null && <p className="quiet">Choose one to see how stale its batches were, how often units were used, and its poisoned ones.</p>}
        </>
      )}
      <h2>Batches</h2>
      <div className="bar">
        <label className="inline">
          State{" "}
          <select value={state ?? ""} onChange={(event) => change("state", event.target.value === "" ? null : event.target.value)}>
            <option value="">all</option>
            {STATES.map((each) => (
              <option key={each}>{each}</option>
            ))}
          </select>
        </label>
        {consumer !== null && <span className="quiet">of {visible(consumer)}</span>}
      </div>
      <Batches consumer={consumer} state={state} />
      {!bound && (
        <>
          {consumer !== null && <Usage consumer={consumer} />}
          {consumer !== null && <Poisoned consumer={consumer} />}
          <h2>What may be served</h2>
          <Readiness key={consumer ?? ""} consumer={consumer ?? consumers[0]?.[0] ?? "policy"} />
        </>
      )}
    </>
  );
}

/** So many units, in words: a pair is one. */
export const unitsOf = (number: number, unit: string): string => counted(number, unit, unit === "trajectory" ? "trajectories" : `${unit}s`);

type Figures = Schemas["ConsumerStats"];

function Consumers({ consumers, chosen, choose }: { consumers: [string, Figures][]; chosen: string | null; choose: (name: string | null) => void }) {
  const numbers = ["Available", "Leased", "Acknowledged", "Dropped", "Poisoned"].map((name) => ({ name, number: true }));
  return (
    <DataTable
      label="Consumers"
      columns={["Consumer", ...numbers]}
      lines={consumers.map(([name, each]) => ({
        key: name,
        className: name === chosen ? "chosen" : "",
        cells: [
          <button key="name" type="button" aria-pressed={name === chosen} onClick={() => choose(name === chosen ? null : name)}>
            {visible(name)}
          </button>,
          ...[each.available, each.leased, each.acknowledged, each.dropped].map((number) => count(number ?? 0)),
          <span key="poisoned" className={(each.poisoned ?? 0) > 0 ? "bad" : undefined}>
            {count(each.poisoned ?? 0)}
          </span>,
        ],
      }))}
    />
  );
}

function Batches({ consumer, state }: { consumer: string | null; state: string | null }) {
  const batches = useQuery({
    queryKey: ["live", "batches", consumer, state],
    queryFn: ({ signal }) => get<Page<BatchRecord>>("batches", { limit: 100, consumer, batch_state: state }, signal),
  });
  if (batches.isError) return <Problem error={batches.error} again={() => void batches.refetch()} />;
  if (batches.isPending) return <p className="quiet">Loading</p>;
  const now = Date.now() / 1000;
  return (
    <DataTable
      label="Batches"
      columns={["Batch", "Consumer", "Method", "Units", "State", "Leased", "Ends", { name: "Held", number: true }]}
      lines={batches.data.items.map((batch) => {
        const late = batch.state === "leased" && batch.deadline < now;
        const held = batch.created_at == null ? null : (batch.state === "leased" ? now : (batch.ended_at ?? now)) - batch.created_at;
        return {
          key: batch.batch_id,
          cells: [
            <Link key="id" href={`/consumption/${encodeURIComponent(batch.batch_id)}`}>{batch.batch_id}</Link>,
            visible(batch.consumer),
            visible(batch.method),
            unitsOf(batch.unit_count ?? 0, batch.unit),
            <span key="state" className={`readiness ${late ? "expired" : batch.state}`}>{batch.state}</span>,
            <When key="leased" at={batch.created_at} />,
            late ? (
              <span key="ends" className="bad" title="The next lease gives its units back">
                overdue, <When at={batch.deadline} />
              </span>
            ) : (
              <When key="ends" at={batch.ended_at ?? batch.deadline} />
            ),
            held === null ? "-" : span(held),
          ],
        };
      })}
      empty={state === null ? "No batch was handed out yet." : "None is in this state."}
    />
  );
}

/** How stale units were and how often they were used, over the latest batches. */
function Usage({ consumer }: { consumer: string }) {
  const usage = useQuery({
    queryKey: ["scan", "usage", consumer],
    refetchInterval: 10_000,
    queryFn: ({ signal }) => get<Schemas["UsageReport"]>(`consumers/${encodeURIComponent(consumer)}/usage`, { batches: 50 }, signal),
  });
  if (usage.isError) return <Problem error={usage.error} again={() => void usage.refetch()} />;
  if (usage.data === undefined) return <p className="quiet">Counting</p>;
  const { data } = usage;
  const batches = [...data.batches].reverse();
  const along = (read: (batch: Schemas["BatchUsage"]) => number | null | undefined) =>
    batches.flatMap((batch) => (batch.created_at == null || read(batch) == null ? [] : [{ x: batch.created_at, y: read(batch)! }]));
  const clock = (at: number) => new Date(at * 1000).toLocaleTimeString();
  return (
    <>
      <h2>Use by {visible(consumer)}</h2>
      <p className="quiet">
        Over {data.whole ? "all" : "the latest"} {count(data.batches.length)} batches with {count(data.units)} units
        {data.looked < data.members ? `; the policy of ${count(data.looked)} of ${count(data.members)} was looked at` : ""}.
      </p>
      <div className="charts">
        <Bars title="Versions behind at the lease" says={data.unjudged > 0 ? `${count(data.unjudged)} cannot be judged: no policy, or another run` : undefined} bars={data.staleness.map((each) => ({ name: String(each.value), count: each.count }))} />
        <Bars title="Times handed out" says={`${counted(data.redelivered, "unit", "units")} more than once`} bars={data.uses.map((each) => ({ name: `${each.value} x`, count: each.count }))} />
        <Chart title="Staleness" x="at" xText={clock} series={[{ name: "mean", points: along((batch) => batch.staleness) }, { name: "most", points: along((batch) => batch.staleness_most) }]} />
        <Chart title="Seconds from lease to end" x="at" xText={clock} series={[{ name: "held", points: along((batch) => batch.held_seconds) }]} />
      </div>
      {data.redeliveries.length > 0 && (
        <details>
          <summary>Units that were handed out again</summary>
          <DataTable
            label="Units that were handed out again"
            columns={["Unit", { name: "Times", number: true }, "Batches, the latest first"]}
            lines={data.redeliveries.map((each) => ({
              key: each.key,
              cells: [
                visible(each.key),
                count(each.batches.length),
                <span key="batches">
                  {each.batches.slice(0, 6).map((id, place) => (
                    <span key={id}>
                      <Link href={`/consumption/${encodeURIComponent(id)}`}>{id}</Link> ({each.states[place]}){" "}
                    </span>
                  ))}
                </span>,
              ],
            }))}
          />
        </details>
      )}
    </>
  );
}
