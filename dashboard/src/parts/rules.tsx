import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";

import { call, get, type Page, type Schemas } from "../api/client";
import { count, visible } from "../format";
import { Problem } from "./problem";

type Policy = Schemas["CurationPolicy"];
type Active = Schemas["ActivePolicy"];
type Preview = Schemas["CurationPreview"];
const EXAMPLE = 'when status == "truncated" then exclude "ran out of turns"\nwhen has label.check.loop then review "repeats itself" 0.5';

/** The policy of a channel: edited as text, tried without writing anything, put in force by who may. */
export function Rules({ admin }: { admin: boolean }) {
  const [channel, setChannel] = useState("train");
  const current = useQuery({
    queryKey: ["live", "curation", channel],
    queryFn: async ({ signal }) => (await get<Page<Active>>("curation", { channel }, signal)).items.find((each) => each.ended_at == null)?.policy ?? null,
  });
  return (
    <>
      <h2>Rules</h2>
      <label className="inline">
        Channel <input value={channel} onChange={(event) => setChannel(event.target.value)} />
      </label>
      {current.isError && <Problem error={current.error} />}
      {current.isSuccess && <Editor key={`${channel} ${JSON.stringify(current.data)}`} channel={channel} policy={current.data} admin={admin} />}
    </>
  );
}

function Editor({ channel, policy, admin }: { channel: string; policy: Policy | null; admin: boolean }) {
  const client = useQueryClient();
  const [text, setText] = useState((policy?.rules ?? []).join("\n"));
  const rules = text.split("\n").map((line) => line.trim()).filter((line) => line !== "");
  const body = { channel, rules, default: policy?.default ?? "ready", name: policy?.name ?? "policy" };
  const trying = useMutation({ mutationFn: () => call<Preview>("POST", "curation/try", { body }) });
  const putting = useMutation({
    mutationFn: () => call<unknown>("PUT", "curation", { body }),
    onSuccess: () => client.invalidateQueries({ queryKey: ["live"] }),
  });
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        trying.mutate();
      }}
    >
      <textarea aria-label="Rules, one a line" rows={6} spellCheck={false} placeholder={EXAMPLE} value={text} onChange={(event) => setText(event.target.value)} />
      <div className="bar">
        <button disabled={rules.length === 0 || trying.isPending}>Try</button>
        {admin && (
          <button type="button" disabled={trying.data === undefined || putting.isPending} onClick={() => putting.mutate()}>
            Put in force
          </button>
        )}
        <span className="quiet">{policy === null ? "No policy is in force here: all that is complete may be served." : `In force: ${visible(policy.name ?? "")}`}</span>
      </div>
      {trying.isError && <Problem error={trying.error} />}
      {putting.isError && <Problem error={putting.error} />}
      {trying.data !== undefined && <Outcome preview={trying.data} rules={rules} />}
    </form>
  );
}

/** What each rule would decide; 0 is the number of what none of them decides. */
function Outcome({ preview, rules }: { preview: Preview; rules: string[] }) {
  return (
    <table>
      <caption>
        Nothing was written. {count(preview.trajectories)} trajectories were looked at{preview.whole ? "" : ", not all that there are"}.
      </caption>
      <thead>
        <tr>
          <th>Rule</th>
          <th className="number">Decides</th>
          <th>Such as</th>
        </tr>
      </thead>
      <tbody>
        {Object.entries(preview.by_rule).map(([rule, number]) => (
          <tr key={rule}>
            <td>{rule === "0" ? "none of them" : visible(`${rule}. ${rules[Number(rule) - 1] ?? ""}`)}</td>
            <td className="number">{count(number)}</td>
            <td>{visible((preview.samples[rule] ?? []).join(", "))}</td>
          </tr>
        ))}
        {Object.entries(preview.changes).map(([change, number]) => (
          <tr key={change}>
            <td className="quiet">{visible(change)}</td>
            <td className="number">{count(number)}</td>
            <td />
          </tr>
        ))}
      </tbody>
    </table>
  );
}
