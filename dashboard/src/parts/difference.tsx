import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Link } from "wouter";

import { get, type Page, type Schemas } from "../api/client";
import { count, visible } from "../format";
import { DataTable } from "./data-table";
import { Facts } from "./facts";
import { Problem } from "./problem";

type Version = Schemas["DatasetVersion"];

/** How another version differs from this one, by default the one that it goes on from. */
export function Difference({ version }: { version: Version }) {
  const others = useQuery({ queryKey: ["live", "datasets"], queryFn: ({ signal }) => get<Page<Version>>("datasets", { limit: 100 }, signal) });
  const [chosen, setChosen] = useState<string | null>(null);
  const there = (others.data?.items ?? []).filter((each) => each.version !== version.version);
  const other = chosen ?? version.parents?.[0] ?? there.find((each) => each.name === version.name)?.version ?? there[0]?.version ?? null;
  const diff = useQuery({
    queryKey: ["dataset-diff", other, version.version],
    enabled: other !== null,
    queryFn: ({ signal }) => get<Schemas["DatasetDiff"]>(`datasets/${encodeURIComponent(other!)}/diff`, { other: version.version, samples: 200 }, signal),
  });
  if (others.isError) return <Problem error={others.error} />;
  if (others.isSuccess && other === null) return <p className="empty">There is no other version to compare with. Freeze one with another filter.</p>;
  return (
    <>
      <div className="bar">
        <label className="inline">
          From{" "}
          <select value={other ?? ""} onChange={(event) => setChosen(event.target.value)}>
            {other !== null && !there.some((each) => each.version === other) && <option value={other}>{visible(other)}</option>}
            {there.map((each) => (
              <option key={each.version} value={each.version}>
                {visible(each.version)}
              </option>
            ))}
          </select>
        </label>
        <span className="quiet">to {visible(version.version)}</span>
      </div>
      {diff.isError && <Problem error={diff.error} again={() => void diff.refetch()} />}
      {diff.isFetching && <p className="quiet">Comparing</p>}
      {diff.data !== undefined && <Found diff={diff.data} />}
    </>
  );
}

function Found({ diff }: { diff: Schemas["DatasetDiff"] }) {
  const told = (counts: Record<string, number> | undefined) => Object.entries(counts ?? {}).map(([name, number]) => `${count(number)} ${visible(name)}`).join(", ") || "none";
  return (
    <>
      <Facts
        items={[
          ["Added", count(diff.added ?? 0)],
          ["Removed", count(diff.removed ?? 0)],
          ["Changed", count(diff.changed ?? 0)],
          ["The same", count(diff.same ?? 0)],
          ["Changed in", told(diff.what)],
          ["Moved between splits", told(diff.moved)],
        ]}
      />
      <DataTable
        label="Rows that differ"
        columns={["Trajectory", "Change", "In", "Split"]}
        lines={(diff.samples ?? []).map((row) => ({
          key: row.trajectory_id,
          cells: [
            <Link key="id" href={`/trajectories/${encodeURIComponent(row.trajectory_id)}`}>{visible(row.trajectory_id)}</Link>,
            <span key="change" className={row.change === "added" ? "good" : row.change === "removed" ? "bad" : "warm"}>{row.change}</span>,
            (row.what ?? []).join(", "),
            visible(row.split === row.new_split || row.new_split == null || row.split == null ? (row.new_split ?? row.split ?? "") : `${row.split} to ${row.new_split}`),
          ],
        }))}
        empty="Both hold the same."
      />
    </>
  );
}
