import { useQuery } from "@tanstack/react-query";
import { Link } from "wouter";

import { get, type Page, type Schemas } from "../api/client";
import { reasonsOf } from "../excluded";
import { count, counted, visible } from "../format";
import { DataTable } from "./data-table";

const NEWEST = 500;
const MOST = 10;

/** Why trajectories are not served: the reasons of the newest excluded ones, each with a way to them. */
export function Excluded({ all }: { all: number }) {
  const found = useQuery({ queryKey: ["scan", "excluded"], enabled: all > 0, refetchInterval: 15_000, queryFn: ({ signal }) => get<Page<Schemas["Trajectory"]>>("trajectories", { where: "excluded", order: "newest", limit: NEWEST }, signal) });
  // What cannot be told is left out: the counter above it stands in any case.
  if (all === 0 || found.data === undefined || found.data.items.length === 0) return null;
  const looked = found.data.items.length;
  const reasons = reasonsOf(found.data.items);
  return (
    <>
      <h2>Why excluded</h2>
      <p className="quiet">
        Of {found.data.next_cursor === null ? "all" : "the newest"} {counted(looked, "that is", "that are")} not served{reasons.length > MOST ? `; ${count(reasons.length - MOST)} rarer reasons are left out` : ""}.
      </p>
      <DataTable
        label="Why excluded"
        columns={["Reason", { name: "Trajectories", number: true }]}
        lines={reasons.slice(0, MOST).map((each) => ({
          key: each.says,
          cells: [<Link key="reason" href={`/trajectories?where=${encodeURIComponent(each.where)}`}>{visible(each.says)}</Link>, count(each.count)],
        }))}
      />
    </>
  );
}
