import { useQuery } from "@tanstack/react-query";

import { get, type Page, type Schemas } from "../api/client";
import { Problem } from "./problem";
import { SaidList } from "./said-list";

/** How people would have replied, beside what was sampled. */
export function Corrections({ step }: { step: Schemas["Step"] }) {
  const said = useQuery({
    queryKey: ["live", "corrections", step.step_id],
    queryFn: ({ signal }) => get<Page<Schemas["Feedback"]>>("feedback", { step_id: step.step_id, kind: "correction", limit: 1000 }, signal),
  });
  if (said.isError) return <Problem error={said.error} />;
  return <SaidList said={said.data?.items ?? []} reply={step.response_message ?? null} />;
}
