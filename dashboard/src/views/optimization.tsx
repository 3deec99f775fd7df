import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { useSearchParams } from "wouter";

import { get, type Page, type Schemas } from "../api/client";
import { count, counted, decimal, visible } from "../format";
import { DataTable } from "../parts/data-table";
import { Icicle } from "../parts/icicle";
import { NODES, NodeTokens } from "../parts/node-tokens";
import { Packing } from "../parts/packing";
import { Problem } from "../parts/problem";
import { Savings } from "../parts/savings";
import { StepLink } from "../parts/step-link";
import { worstForks } from "../saving";

const KINDS = ["group", "batch", "consumer", "dataset", "trajectory", "where"] as const;
type Kind = (typeof KINDS)[number];
const SAYS: Record<Kind, string> = {
  group: "the rollouts of a group",
  batch: "the units of a batch",
  consumer: "the newest batch of a consumer",
  dataset: "a dataset version, NAME or NAME@DIGITS",
  trajectory: "the steps of a trajectory",
  where: "steps for which this holds",
};

/** The token tree of a group, batch or dataset, and what merging saves there. */
export function Optimization() {
  const [asked, setAsked] = useSearchParams();
  const kind = KINDS.find((each) => asked.has(each)) ?? null;
  const query = kind === null ? null : { [kind]: asked.get(kind) ?? "" };
  const budget = asked.get("budget") ?? "8192";
  const tree = useQuery({
    queryKey: ["merge", "tree", query],
    enabled: query !== null,
    queryFn: ({ signal }) => get<Schemas["MergeTree"]>("merge/tree", { ...query!, max_nodes: NODES }, signal),
  });
  const stats = useQuery({
    queryKey: ["merge", "stats", query, budget],
    enabled: query !== null,
    queryFn: ({ signal }) => get<Schemas["MergeStats"]>("merge/stats", { ...query!, budget }, signal),
  });
  return (
    <>
      <h1>Optimization</h1>
      <Source
        key={asked.toString()}
        kind={kind ?? "group"}
        value={kind === null ? "" : (asked.get(kind) ?? "")}
        budget={budget}
        set={(chosen, value, tokens) => setAsked(new URLSearchParams({ [chosen]: value, budget: tokens }))}
      />
      {query === null && (
        <>
          <p className="empty">
            Choose what to look at: the field offers the newest. A trajectory's page leads to the tree of its group; <code>agentworld merge stats</code> prints the same numbers.
          </p>
          <Savings />
        </>
      )}
      {tree.isLoading && <p className="quiet">Building the tree</p>}
      {tree.isError && <Problem error={tree.error} again={() => void tree.refetch()} />}
      {stats.data !== undefined && <Numbers stats={stats.data} />}
      {tree.data !== undefined && (
        <>
          <h2>Token tree of {visible(tree.data.source)}</h2>
          {tree.data.stopped != null && <p className="problem">Only a part was read: it stopped at the limit of {tree.data.stopped}.</p>}
          <Icicle nodes={tree.data.nodes} inside={(node) => <NodeTokens key={node.id} query={query!} node={node} />} />
          <Forks nodes={tree.data.nodes} />
        </>
      )}
      {stats.data !== undefined && query !== null && (
        <>
          <Packing key={JSON.stringify([query, budget])} query={query} stats={stats.data} budget={Number(budget)} />
          <Worst stats={stats.data} />
        </>
      )}
    </>
  );
}

type SourceProps = { kind: Kind; value: string; budget: string; set: (kind: Kind, value: string, budget: string) => void };

function Source({ kind, value, budget, set }: SourceProps) {
  const [chosen, setChosen] = useState(kind);
  const [text, setText] = useState(value);
  const [tokens, setTokens] = useState(budget);
  const known = useQuery({ queryKey: ["sources", chosen], staleTime: 10_000, queryFn: ({ signal }) => sourcesOf(chosen, signal) }).data ?? [];
  return (
    <form
      role="search"
      onSubmit={(event) => {
        event.preventDefault();
        if (text.trim() !== "") set(chosen, text.trim(), tokens);
      }}
    >
      <select aria-label="What to look at" value={chosen} onChange={(event) => setChosen(event.target.value as Kind)}>
        {KINDS.map((each) => (
          <option key={each}>{each}</option>
        ))}
      </select>
      <input type="search" list="sources" aria-label={SAYS[chosen]} placeholder={SAYS[chosen]} spellCheck={false} value={text} onChange={(event) => setText(event.target.value)} />
      <datalist id="sources">
        {known.map((name) => (
          <option key={name} value={name} />
        ))}
      </datalist>
      <label className="inline">
        Micro-batch{" "}
        <input type="number" min={1} value={tokens} onChange={(event) => setTokens(event.target.value)} />
      </label>
      <button>Show</button>
    </form>
  );
}

const OFFERED = 50;

/** The newest that can be looked at, to choose from; none where only a filter can be typed. */
async function sourcesOf(kind: Kind, signal: AbortSignal): Promise<string[]> {
  if (kind === "where") return [];
  if (kind === "dataset") return (await get<Page<Schemas["DatasetVersion"]>>("datasets", { limit: OFFERED }, signal)).items.map((each) => each.version);
  if (kind === "batch" || kind === "consumer") {
    const { items } = await get<Page<Schemas["BatchRecord"]>>("batches", { limit: OFFERED }, signal);
    return [...new Set(items.map((each) => (kind === "batch" ? each.batch_id : each.consumer)))];
  }
  const { items } = await get<Page<Schemas["Trajectory"]>>("trajectories", { order: "newest", limit: OFFERED }, signal);
  return [...new Set(items.flatMap((each) => (kind === "trajectory" ? each.trajectory_id : (each.group_id ?? []))))];
}

function Numbers({ stats }: { stats: Schemas["MergeStats"] }) {
  const { whole, packing, cost } = stats;
  const reasons = Object.entries(whole.reasons).map(([reason, number]) => `${count(number)} by ${reason}`);
  return (
    <section className="cards">
      <Fact name="Ratio" value={`${decimal(whole.ratio)} x`} says={`${count(whole.total)} tokens flat, ${count(whole.unique)} merged`} />
      <Fact name="Sequences" value={count(whole.sequences)} says={`${counted(stats.units, "unit", "units")}, ${count(whole.depth)} deep at most`} />
      <Fact name="Forks" value={count(whole.forks)} says={reasons.join(", ") || "none"} />
      {packing != null && (
        <Fact
          name="Micro-batches"
          value={count(packing.micro_batches)}
          says={`${count(packing.tokens)} tokens, ${count(packing.bound)} is the bound, ${decimal(packing.lost * 100)}% of the sharing lost`}
        />
      )}
      {cost != null && <Fact name="Cost bound" value={`${decimal(cost.speedup)} x`} says="of forward and backward, flat over merged" />}
    </section>
  );
}

function Fact({ name, value, says }: { name: string; value: string; says: string }) {
  return (
    <div className="card">
      <span className="name">{name}</span>
      <strong>{value}</strong>
      <span className="quiet">{visible(says)}</span>
    </div>
  );
}

/** Forks that cost most: what is below them is computed anew, though a part of it was there. */
function Forks({ nodes }: { nodes: Schemas["MergeTree"]["nodes"] }) {
  const worst = worstForks(nodes, 10);
  if (worst.length === 0) {
    return (
      <>
        <h2>Worst forks</h2>
        <p className="empty">None could be avoided here: sequences part where rollouts of a task say other things. Templates that change, rewritten histories and retries would be listed.</p>
      </>
    );
  }
  return (
    <>
      <h2>Worst forks</h2>
      <DataTable
        label="Worst forks"
        columns={["Why", { name: "At token", number: true }, { name: "Tokens below it", number: true }, { name: "Sequences", number: true }, "Of", "Steps that end there"]}
        lines={worst.map(({ node, tokens }) => ({
          key: String(node.id),
          cells: [visible(node.reason ?? ""), count(node.start), count(tokens), count(node.sequences), visible(node.unit ?? "several"), <Ends key="ends" ids={(node.ends ?? []).slice(0, 3)} />],
        }))}
      />
    </>
  );
}

function Ends({ ids }: { ids: readonly string[] }) {
  if (ids.length === 0) return "-";
  return (
    <ul className="members">
      {ids.map((id) => (
        <li key={id}>
          <StepLink id={id} />
        </li>
      ))}
    </ul>
  );
}

function Worst({ stats }: { stats: Schemas["MergeStats"] }) {
  if (stats.worst.length === 0) return null;
  return (
    <>
      <h2>Least shared</h2>
      <DataTable
        label="Least shared"
        columns={["Unit", { name: "Ratio", number: true }, { name: "Sequences", number: true }, { name: "Tokens", number: true }, "Forks"]}
        lines={stats.worst.map((unit) => ({
          key: unit.unit,
          cells: [
            visible(unit.unit),
            decimal(unit.ratio),
            count(unit.sequences),
            count(unit.total),
            Object.entries(unit.reasons)
              .map(([reason, number]) => `${count(number)} ${visible(reason)}`)
              .join(", "),
          ],
        }))}
      />
    </>
  );
}
