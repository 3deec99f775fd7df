import { useMutation } from "@tanstack/react-query";
import { useState } from "react";

import { get, type Schemas } from "../api/client";
import { count, decimal } from "../format";
import { budgetsAround } from "../saving";
import { DataTable } from "./data-table";
import { Problem } from "./problem";

type Numbers = Schemas["PackedNumbers"];

/** Micro-batches under several budgets: how much of the sharing each loses. */
export function Packing({ query, stats, budget }: { query: Record<string, string>; stats: Schemas["MergeStats"]; budget: number }) {
  const [found, setFound] = useState<Numbers[]>(stats.packing == null ? [] : [stats.packing]);
  const budgets = budgetsAround(budget, stats.whole.depth).filter((each) => each !== budget);
  const all = useMutation({
    mutationFn: async () => {
      // One after the other, as the server builds few trees at once.
      for (const each of budgets) {
        const { packing } = await get<Schemas["MergeStats"]>("merge/stats", { ...query, budget: each });
        if (packing != null) setFound((before) => [...before.filter((one) => one.budget !== packing.budget), packing].sort((a, b) => a.budget - b.budget));
      }
    },
  });
  if (stats.packing == null) return null;
  return (
    <>
      <h2>Micro-batches</h2>
      <DataTable
        label="Micro-batches"
        columns={[{ name: "Budget", number: true }, { name: "Micro-batches", number: true }, { name: "At least", number: true }, { name: "Tokens computed", number: true }, { name: "Bound", number: true }, { name: "Sharing lost", number: true }, { name: "Fullest", number: true }, { name: "Left out", number: true }]}
        lines={found.map((each) => ({
          key: String(each.budget),
          className: each.budget === budget ? "chosen" : "",
          cells: [count(each.budget), count(each.micro_batches), count(each.fewest), count(each.tokens), count(each.bound), `${decimal(each.lost * 100)}%`, count(each.fullest), count(each.left_out)],
        }))}
      />
      {all.isError && <Problem error={all.error} />}
      {found.length === 1 && budgets.length > 0 && (
        <button type="button" disabled={all.isPending} onClick={() => all.mutate()}>
          Try other budgets
        </button>
      )}
    </>
  );
}
