import { useQuery } from "@tanstack/react-query";
import { Link } from "wouter";

import { get, type Schemas } from "../api/client";
import { compact, count, counted } from "../format";
import { Excluded } from "./excluded";
import { Problem } from "./problem";

/** The stages as far as a key sees them that is bound to a channel or a trajectory: by looking, as counters are the pool's. */
export function BoundLifecycle() {
  const facets = useQuery({ queryKey: ["scan", "bound"], refetchInterval: 3_000, queryFn: ({ signal }) => get<Schemas["Facets"]>("facets", {}, signal) });
  if (facets.isPending) return <p className="quiet">Counting</p>;
  if (facets.isError) return <Problem error={facets.error} again={() => void facets.refetch()} />;
  const { looked, whole, unrewarded, values } = facets.data;
  const of = (name: string, value: string) => values[name]?.find((each) => each.value === value)?.count ?? 0;
  const open = of("readiness", "open");
  const stages = [
    { name: "collected", number: looked, says: `${count(open)} still open`, where: "" },
    { name: "complete", number: looked - of("status", "open"), says: "have ended", where: "not open" },
    { name: "rewarded", number: looked - unrewarded, says: `${count(of("readiness", "complete"))} that have ended have none`, where: "has reward" },
    { name: "ready", number: of("readiness", "ready"), says: "may be served", where: "ready" },
    { name: "excluded", number: of("readiness", "excluded"), says: "not served; each says why", where: "excluded" },
  ];
  return (
    <>
      <h1>Lifecycle</h1>
      <p className="quiet">
        This key is bound, so it sees neither counters of the whole pool nor its consumers. Here are {whole ? "" : "the newest "}
        {counted(looked, "trajectory", "trajectories")} of its channel.
      </p>
      <ol className="stages flow" aria-label="From collected to ready">
        {stages.map((stage) => (
          <li key={stage.name} className={stage.name === "excluded" ? "out" : undefined}>
            <span className="name">{stage.name}</span>
            <Link href={stage.where === "" ? "/trajectories" : `/trajectories?where=${encodeURIComponent(stage.where)}`}>
              <strong title={count(stage.number)}>{compact(stage.number)}</strong>
            </Link>
            <span className="quiet">{stage.says}</span>
          </li>
        ))}
      </ol>
      <Excluded all={of("readiness", "excluded")} />
    </>
  );
}
