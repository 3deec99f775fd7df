import { useQuery } from "@tanstack/react-query";
import { useState } from "react";

import { get, type Page } from "../api/client";
import { useEvents, type PoolEvent } from "../api/live";
import { useScopes } from "../api/scopes";
import { count, visible } from "../format";
import { curvesOf, FIRST, runsOf, toldBy, type Told } from "../metrics";
import { Chart } from "./chart";
import { Problem } from "./problem";

const CHANNEL = "metrics";
const PAGE = 1_000;
const PAGES = 20;
const MOST_RUNS = 5;

/** Losses, rewards and the rest as trainers tell them, of several runs over one another. */
export function TrainingCurves() {
  const { bound, known } = useScopes();
  const [came, setCame] = useState<Told[]>([]);
  const before = useQuery({ queryKey: ["metrics"], enabled: known && !bound, staleTime: Infinity, refetchOnMount: "always", queryFn: ({ signal }) => readAll(signal) });
  useEvents((events) => {
    if (events.length === 0 && known && !bound) void before.refetch();
    const told = events.flatMap((event) => toldBy(event) ?? []);
    if (told.length > 0) setCame((all) => [...all, ...told]);
  });
  const [left, setLeft] = useState<readonly string[]>([]);
  const [chosen, setChosen] = useState<readonly string[] | null>(null);
  if (bound) return null;
  if (before.isError) return <Problem error={before.error} again={() => void before.refetch()} />;
  if (before.data === undefined) return <p className="quiet">Loading</p>;
  const told = [...before.data.told, ...came];
  const runs = runsOf(told);
  if (runs.length === 0) {
    return (
      <p className="empty">
        No trainer has told numbers yet. <code>agentworld train CONFIG</code> does of each batch and evaluation; another one may with <code>POST /api/v1/metrics</code>.
      </p>
    );
  }
  const shown = runs.filter((run) => !left.includes(run)).slice(0, MOST_RUNS);
  const curves = curvesOf(told, shown);
  const names = chosen ?? [...curves.keys()].filter((name) => FIRST.includes(name));
  const wanted = names.length > 0 || chosen !== null ? names : [...curves.keys()].slice(0, 4);
  const toggle = (all: readonly string[], one: string) => (all.includes(one) ? all.filter((each) => each !== one) : [...all, one]);
  return (
    <>
      {!before.data.whole && <p className="quiet">The first {count(PAGE * PAGES)} events of the channel were read.</p>}
      <div className="form">
        <fieldset>
          <legend className="quiet">Trainers</legend>
          {runs.slice(0, 20).map((run) => (
            <label key={run} className="inline">
              <input type="checkbox" checked={shown.includes(run)} disabled={!shown.includes(run) && shown.length >= MOST_RUNS} onChange={() => setLeft(toggle(left, run))} /> {visible(run)}
            </label>
          ))}
        </fieldset>
        <details>
          <summary>Curves, {count(wanted.length)} of {count(curves.size)}</summary>
          <fieldset>
            <legend className="quiet">Shown</legend>
            {[...curves.keys()].map((name) => (
              <label key={name} className="inline">
                <input type="checkbox" checked={wanted.includes(name)} onChange={() => setChosen(toggle(wanted, name))} /> {visible(name)}
              </label>
            ))}
          </fieldset>
        </details>
      </div>
      <div className="charts">
        {wanted.map((name) => (
          <Chart key={name} title={name} x="step" series={curves.get(name) ?? []} />
        ))}
      </div>
    </>
  );
}

async function readAll(signal: AbortSignal): Promise<{ told: Told[]; whole: boolean }> {
  const told: Told[] = [];
  let after: string | number = 0;
  for (let page = 0; page < PAGES; page += 1) {
    const found: Page<PoolEvent> = await get("events", { channel: CHANNEL, after, limit: PAGE }, signal);
    told.push(...found.items.flatMap((event) => toldBy(event) ?? []));
    if (found.next_cursor === null) return { told, whole: true };
    after = found.next_cursor;
  }
  return { told, whole: false };
}
