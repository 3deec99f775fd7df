import { Link, useSearchParams } from "wouter";

import { get, type Schemas } from "../api/client";
import { count, counted, decimal, visible } from "../format";
import { Chart } from "../parts/chart";
import { DataTable } from "../parts/data-table";
import { Problem } from "../parts/problem";
import { TrainingCurves } from "../parts/training-curves";
import { useScan } from "../parts/use-scan";
import { When } from "../parts/when";
import { byTime, byVersion, isShort, ofPolicies, reward, success, tokens } from "../runs";

type Run = Schemas["RunReport"];
type Cell = Schemas["RunCell"];
const NONE = "(no run)";
const MOST = 5;

/** How runs go: agents on task sets, success and rewards along the versions of the policy; several beside one another. */
export function Runs() {
  const [asked, setAsked] = useSearchParams();
  const least = asked.get("success") ?? "0.5";
  const report = useScan(["runs", least], (limit, signal) => get<Schemas["RunsReport"]>("runs", { success: least, limit }, signal), { again: 10_000, keep: true });
  if (report.isError) return <Problem error={report.error} again={() => void report.refetch()} />;
  if (report.data === undefined) return <p className="quiet">Counting</p>;
  const runs = report.data.runs;
  if (runs.length === 0) {
    return (
      <>
        <div className="empty">
          <h1>Nothing has run yet</h1>
          <p>
            <code>agentworld run CONFIG</code> sends agents over tasks, and names the run of each trajectory; <code>agentworld train CONFIG</code> trains on what they bring.
          </p>
        </div>
        <h2>Training</h2>
        <TrainingCurves />
      </>
    );
  }
  const nameOf = (run: { run?: string | null }) => run.run ?? NONE;
  const named = asked.getAll("run");
  const chosen = named.length === 0 ? runs.slice(0, 1) : runs.filter((run) => named.includes(nameOf(run)));
  const together = asked.has("curves") ? asked.get("curves") === "all" : named.length === 0 && isShort(chosen) && !isShort(runs);
  const toggle = (run: Run) => {
    const next = new URLSearchParams(asked);
    const names = chosen.map(nameOf);
    next.delete("run");
    for (const name of names.includes(nameOf(run)) ? names.filter((each) => each !== nameOf(run)) : [...names.slice(1 - MOST), nameOf(run)]) next.append("run", name);
    setAsked(next);
  };
  return (
    <>
      <h1>Runs</h1>
      <div className="bar">
        <label className="inline">
          A reward is a success from{" "}
          <input type="number" step="any" value={least} onChange={(event) => event.target.value !== "" && setAsked(withOne(asked, "success", event.target.value))} />
        </label>
        <span className="quiet">
          Over the newest {counted(report.data.looked, "trajectory", "trajectories")}{report.data.whole ? ", all that there are" : ", not all that there are"}. Choose up to {MOST} to compare.
        </span>
      </div>
      <DataTable
        label="Runs"
        columns={["Run", { name: "Trajectories", number: true }, { name: "Open", number: true }, { name: "Rewarded", number: true }, { name: "Success", number: true }, { name: "Mean reward", number: true }, { name: "Sampled tokens", number: true }, "Began", "Newest"]}
        lines={runs.map((run) => ({
          key: nameOf(run),
          className: chosen.includes(run) ? "chosen" : "",
          cells: [
            <button key="name" type="button" aria-pressed={chosen.includes(run)} onClick={() => toggle(run)}>
              {visible(nameOf(run))}
            </button>,
            count(run.trajectories ?? 0),
            count(run.open ?? 0),
            count(run.rewarded ?? 0),
            share(run.successes ?? 0, run.rewarded ?? 0),
            run.reward == null ? "-" : decimal(run.reward),
            count(run.sampled_tokens ?? 0),
            <When key="first" at={run.first_at} />,
            <When key="last" at={run.last_at} />,
          ],
        }))}
      />
      <h2>Training</h2>
      <TrainingCurves />
      <h2>Rollouts</h2>
      <div className="bar">
        <label className="inline">
          Curves{" "}
          <select value={together ? "all" : "each"} onChange={(event) => setAsked(withOne(asked, "curves", event.target.value))}>
            <option value="each">of each chosen run</option>
            <option value="all">of all runs together, by version of the policy</option>
          </select>
        </label>
      </div>
      {together ? <Together runs={runs} /> : chosen.length > 0 && <Curves runs={chosen} nameOf={nameOf} />}
      {chosen.map((run) => (
        <Progress key={nameOf(run)} name={nameOf(run)} run={run} />
      ))}
    </>
  );
}

type Curved = { runs: readonly Run[]; nameOf: (run: { run?: string | null }) => string };

function Curves({ runs, nameOf }: Curved) {
  const clock = (at: number) => new Date(at * 1000).toLocaleTimeString();
  return (
    <div className="charts">
      <Chart title="Success by version of the policy" x="version" yText={percent} series={byVersion(runs, nameOf, success)} />
      <Chart title="Mean reward by version of the policy" x="version" series={byVersion(runs, nameOf, reward)} />
      <Chart title="Mean reward by time" x="at" xText={clock} series={byTime(runs, nameOf, reward)} />
      <Chart title="Sampled tokens of a trajectory by version" x="version" series={byVersion(runs, nameOf, tokens)} />
    </div>
  );
}

function Together({ runs }: { runs: readonly Run[] }) {
  return (
    <div className="charts">
      <Chart title="Success by version, all runs" x="version" yText={percent} series={ofPolicies(runs, success)} />
      <Chart title="Mean reward by version, all runs" x="version" series={ofPolicies(runs, reward)} />
      <Chart title="Sampled tokens of a trajectory by version, all runs" x="version" series={ofPolicies(runs, tokens)} />
    </div>
  );
}

/** Agents by task sets: how far, and how well. */
function Progress({ name, run }: { name: string; run: Run }) {
  const cells = run.cells ?? [];
  const agents = [...new Set(cells.map((cell) => cell.agent ?? ""))];
  const sets = [...new Set(cells.map((cell) => cell.task_set ?? ""))];
  const at = (agent: string, set: string) => cells.find((cell) => (cell.agent ?? "") === agent && (cell.task_set ?? "") === set);
  return (
    <>
      <h2>{visible(name)}: agents by task sets</h2>
      <DataTable
        label={`Agents by task sets of ${visible(name)}`}
        columns={["Agent", ...sets.map((set) => (set === "" ? "no task set" : visible(set)))]}
        lines={agents.map((agent) => ({
          key: agent,
          cells: [agent === "" ? "no name" : visible(agent), ...sets.map((set) => <CellView key={set} run={run} cell={at(agent, set)} />)],
        }))}
      />
    </>
  );
}

function CellView({ run, cell }: { run: Run; cell: Cell | undefined }) {
  if (cell === undefined) return <span className="quiet">none</span>;
  const parts = [run.run === null ? "metadata.run is null" : `metadata.run == ${JSON.stringify(run.run)}`, cell.agent == null ? null : `agent == ${JSON.stringify(cell.agent)}`, cell.task_set == null ? null : `task.task_set == ${JSON.stringify(cell.task_set)}`];
  const all = cell.trajectories ?? 0;
  const done = all - (cell.open ?? 0);
  const ends = (["failed", "truncated", "abandoned", "excluded"] as const).filter((name) => (cell[name] ?? 0) > 0).map((name) => `${count(cell[name]!)} ${name}`);
  return (
    <div>
      <Link href={`/trajectories?where=${encodeURIComponent(parts.filter((part) => part !== null).join(" and "))}`}>
        {count(done)} of {count(all)} ended
      </Link>
      <progress max={all} value={done} aria-label="ended" />
      <div>
        {share(cell.successes ?? 0, cell.rewarded ?? 0)} success{cell.reward == null ? "" : `, reward ${decimal(cell.reward)}`}
      </div>
      <div className="quiet">{ends.join(", ")}</div>
    </div>
  );
}

const percent = (value: number): string => `${Math.round(value * 100)}%`;
const share = (part: number, whole: number): string => (whole === 0 ? "-" : `${((part / whole) * 100).toFixed(whole < 1000 ? 0 : 1)}%`);

function withOne(asked: URLSearchParams, name: string, value: string): URLSearchParams {
  const next = new URLSearchParams(asked);
  next.set(name, value);
  return next;
}
