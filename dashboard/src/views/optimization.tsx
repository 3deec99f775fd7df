import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { useSearchParams } from "wouter";

import { get, type Schemas } from "../api/client";
import { count, counted, decimal, visible } from "../format";
import { DataTable } from "../parts/data-table";
import { Icicle } from "../parts/icicle";
import { Packing } from "../parts/packing";
import { Problem } from "../parts/problem";
import { Savings } from "../parts/savings";
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
    queryFn: ({ signal }) => get<Schemas["MergeTree"]>("merge/tree", { ...query!, max_nodes: 1000 }, signal),
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
            Choose what to look at. A trajectory's page leads to the tree of its group; <code>agentworld merge stats</code> prints the same numbers.
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
          <Icicle nodes={tree.data.nodes} />
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
      <input type="search" aria-label={SAYS[chosen]} placeholder={SAYS[chosen]} spellCheck={false} value={text} onChange={(event) => setText(event.target.value)} />
      <label className="inline">
        Micro-batch{" "}
        <input type="number" min={1} value={tokens} onChange={(event) => setTokens(event.target.value)} />
      </label>
      <button>Show</button>
    </form>
  );
}

function Numbers({ stats }: { stats: Schemas["MergeStats"] }) {
  const { whole, packing, cost } = stats;
  const reasons = Object.entries(whole.reasons).map(([reason, number]) => `${count(number)} ${reason}`);
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
  if (worst.length === 0) return null;
  return (
    <>
      <h2>Worst forks</h2>
      <DataTable
        label="Worst forks"
        columns={["Why", { name: "At token", number: true }, { name: "Tokens below it", number: true }, { name: "Sequences", number: true }, "Of", "Steps that end there"]}
        lines={worst.map(({ node, tokens }) => ({
          key: String(node.id),
          cells: [visible(node.reason ?? ""), count(node.start), count(tokens), count(node.sequences), visible(node.unit ?? "several"), visible((node.ends ?? []).slice(0, 3).join(", ") || "-")],
        }))}
      />
    </>
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
