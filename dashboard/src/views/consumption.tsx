import { useQuery } from "@tanstack/react-query";

import { get, type Page, type Schemas } from "../api/client";
import { count, visible } from "../format";
import { Problem } from "../parts/problem";
import { When } from "../parts/when";

/** Who takes batches, and which. */
export function Consumption() {
  const stats = useQuery({ queryKey: ["live", "stats"], queryFn: ({ signal }) => get<Schemas["PoolStats"]>("stats", {}, signal) });
  const batches = useQuery({
    queryKey: ["live", "batches"],
    queryFn: ({ signal }) => get<Page<Schemas["BatchRecord"]>>("batches", { limit: 100 }, signal),
  });
  if (stats.isError) return <Problem error={stats.error} again={() => void stats.refetch()} />;
  const consumers = Object.entries(stats.data?.consumers ?? {});
  return (
    <>
      <h1>Consumption</h1>
      {stats.isSuccess && consumers.length === 0 && (
        <p className="empty">
          Nobody has leased a batch yet. A trainer does with <code>pool.consumer("policy").stream(...)</code>, or try{" "}
          <code>agentworld train CONFIG</code>.
        </p>
      )}
      {consumers.length > 0 && (
        <table>
          <thead>
            <tr>
              <th>Consumer</th>
              {["Available", "Leased", "Acknowledged", "Dropped", "Poisoned"].map((name) => (
                <th key={name} className="number">
                  {name}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {consumers.map(([name, each]) => (
              <tr key={name}>
                <td>{visible(name)}</td>
                {[each.available, each.leased, each.acknowledged, each.dropped, each.poisoned].map((number, place) => (
                  <td key={place} className="number">
                    {count(number ?? 0)}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      )}
      <h2>Batches</h2>
      {batches.isError && <Problem error={batches.error} again={() => void batches.refetch()} />}
      <table>
        <thead>
          <tr>
            <th>Batch</th>
            <th>Consumer</th>
            <th>Method</th>
            <th>Units</th>
            <th>State</th>
            <th>Leased</th>
            <th>Ends</th>
          </tr>
        </thead>
        <tbody>
          {(batches.data?.items ?? []).map((batch) => (
            <tr key={batch.batch_id}>
              <td>{batch.batch_id}</td>
              <td>{visible(batch.consumer)}</td>
              <td>{visible(batch.method)}</td>
              <td>
                {count(batch.unit_count ?? 0)} of {batch.unit}
              </td>
              <td className={`readiness ${batch.state}`}>{batch.state}</td>
              <td>
                <When at={batch.created_at} />
              </td>
              <td>
                <When at={batch.ended_at ?? batch.deadline} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </>
  );
}
