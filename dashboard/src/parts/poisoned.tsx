import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";

import { call, get, type Schemas } from "../api/client";
import { needs, useScopes } from "../api/scopes";
import { count, visible } from "../format";
import { DataTable } from "./data-table";
import { Problem } from "./problem";

/** Units that are set aside, as nobody who was handed them came to an end with them. */
export function Poisoned({ consumer }: { consumer: string }) {
  const client = useQueryClient();
  const { lease } = useScopes();
  const path = `consumers/${encodeURIComponent(consumer)}`;
  const found = useQuery({ queryKey: ["live", "poisoned", consumer], queryFn: ({ signal }) => get<Schemas["PoisonedReply"]>(`${path}/poisoned`, {}, signal) });
  const requeue = useMutation({
    mutationFn: (keys: string[]) => call<Schemas["RequeueReply"]>("POST", `${path}/requeue`, { body: { keys } }),
    onSuccess: () => client.invalidateQueries({ queryKey: ["live"] }),
  });
  if (found.isError) return <Problem error={found.error} />;
  if (found.data === undefined || found.data.items.length === 0) return null;
  return (
    <>
      <h2>Poisoned units</h2>
      <p className="quiet">
        These were handed out time and again and never acknowledged: the trainer may fail on them. Look at one before they are handed out anew. {!lease && needs("lease", "Requeueing")}
      </p>
      {requeue.isError && <Problem error={requeue.error} />}
      <DataTable
        label="Poisoned units"
        columns={["Unit", { name: "Deliveries", number: true }, "Why", "Action"]}
        lines={found.data.items.map((each) => ({
          key: each.key,
          cells: [
            `${each.unit} ${visible(each.key)}`,
            count(each.deliveries),
            visible(each.reason),
            lease ? (
              <button key="act" type="button" disabled={requeue.isPending} onClick={() => requeue.mutate([each.key])}>
                Hand out anew
              </button>
            ) : (
              ""
            ),
          ],
        }))}
      />
    </>
  );
}
