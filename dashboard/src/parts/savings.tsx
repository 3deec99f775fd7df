import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Link } from "wouter";

import { ApiError, get, type Page, type Schemas } from "../api/client";
import { compact, count, decimal, visible } from "../format";
import { Chart } from "./chart";
import { DataTable } from "./data-table";
import { Problem } from "./problem";
import { When } from "./when";

type Saved = { batch: Schemas["BatchRecord"]; stats: Schemas["MergeStats"] };
const MOST = 12;

/** What merging saves on the latest batches of a consumer, along time. */
export function Savings() {
  const stats = useQuery({ queryKey: ["live", "stats"], queryFn: ({ signal }) => get<Schemas["PoolStats"]>("stats", {}, signal) });
  const names = Object.keys(stats.data?.consumers ?? {});
  const [chosen, setChosen] = useState<string | null>(null);
  const consumer = chosen ?? names[0] ?? null;
  const saved = useQuery({
    queryKey: ["savings", consumer],
    enabled: consumer !== null,
    staleTime: 60_000,
    queryFn: ({ signal }) => savedBy(consumer!, signal),
  });
  if (stats.isError) return <Problem error={stats.error} />;
  if (stats.isSuccess && names.length === 0) return <p className="quiet">Once batches are leased, what merging saves on each is here.</p>;
  if (consumer === null) return null;
  const rows = saved.data ?? [];
  const along = (read: (stats: Schemas["MergeStats"]) => number) => rows.flatMap(({ batch, stats: of }) => (batch.created_at == null ? [] : [{ x: batch.created_at, y: read(of) }]));
  const clock = (at: number) => new Date(at * 1000).toLocaleTimeString();
  return (
    <>
      <h2>Saved on batches</h2>
      <div className="bar">
        <label className="inline">
          Consumer{" "}
          <select value={consumer} onChange={(event) => setChosen(event.target.value)}>
            {names.map((name) => (
              <option key={name} value={name}>
                {visible(name)}
              </option>
            ))}
          </select>
        </label>
        <span className="quiet">The latest {MOST} batches.</span>
      </div>
      {saved.isError && <Problem error={saved.error} again={() => void saved.refetch()} />}
      {saved.isFetching && <p className="quiet">Building trees</p>}
      <div className="charts">
        <Chart title="Ratio of tokens, flat by merged" x="at" xText={clock} series={[{ name: "ratio", points: along((of) => of.whole.ratio) }]} />
        <Chart title="Tokens" x="at" xText={clock} yText={compact} series={[{ name: "flat", points: along((of) => of.whole.total) }, { name: "merged", points: along((of) => of.whole.unique) }]} />
      </div>
      {saved.isSuccess && (
        <DataTable
          label="Saved on batches"
          columns={["Batch", "Leased", { name: "Sequences", number: true }, { name: "Flat", number: true }, { name: "Merged", number: true }, { name: "Ratio", number: true }, { name: "Forks", number: true }]}
          lines={[...rows].reverse().map(({ batch, stats: of }) => ({
            key: batch.batch_id,
            cells: [
              <Link key="id" href={`/optimization?batch=${encodeURIComponent(batch.batch_id)}`}>{batch.batch_id}</Link>,
              <When key="at" at={batch.created_at} />,
              count(of.whole.sequences),
              count(of.whole.total),
              count(of.whole.unique),
              `${decimal(of.whole.ratio)} x`,
              count(of.whole.forks),
            ],
          }))}
          empty="No batch of it has ids to merge."
        />
      )}
    </>
  );
}

/** The oldest first; batches whose steps are gone, or have no ids, are passed over. */
async function savedBy(consumer: string, signal: AbortSignal): Promise<Saved[]> {
  const { items } = await get<Page<Schemas["BatchRecord"]>>("batches", { consumer, limit: MOST }, signal);
  const found: Saved[] = [];
  for (const batch of items) {
    try {
      found.push({ batch, stats: await get<Schemas["MergeStats"]>("merge/stats", { batch: batch.batch_id }, signal) });
    } catch (error) {
      if (!(error instanceof ApiError) || ![400, 404, 409, 422].includes(error.status)) throw error;
    }
  }
  return found.filter(({ stats }) => stats.whole.sequences > 0).reverse();
}
