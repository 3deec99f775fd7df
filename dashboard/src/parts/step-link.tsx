import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Link } from "wouter";

import { get, type Schemas } from "../api/client";
import { visible } from "../format";
import { Problem } from "./problem";

/** A step's page is its trajectory's, which is asked for when it is wanted. */
export function StepLink({ id }: { id: string }) {
  const [wanted, setWanted] = useState(false);
  const step = useQuery({ queryKey: ["step-of", id], enabled: wanted, queryFn: ({ signal }) => get<Schemas["Step"]>(`steps/${encodeURIComponent(id)}`, {}, signal) });
  if (step.isError) return <Problem error={step.error} />;
  if (step.data === undefined) {
    return (
      <button type="button" onClick={() => setWanted(true)}>
        step {visible(id)}
      </button>
    );
  }
  return (
    <Link href={`/trajectories/${encodeURIComponent(step.data.trajectory_id)}?step=${encodeURIComponent(id)}`}>
      step {visible(id)} of {visible(step.data.trajectory_id)}
    </Link>
  );
}
