import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect, useRef, useState } from "react";
import { Link } from "wouter";

import { ApiError, call, get, type Page, type Schemas } from "../api/client";
import { needs } from "../api/scopes";
import { count, visible } from "../format";
import { faultOf, rulesOf, type RuleFault } from "../rules";
import { DataTable } from "./data-table";
import { Problem } from "./problem";

type Policy = Schemas["CurationPolicy"];
type Active = Schemas["ActivePolicy"];
type Preview = Schemas["CurationPreview"];
const EXAMPLE = 'when status == "truncated" then exclude "ran out of turns"\nwhen has label.check.loop then review "repeats itself" 0.5';
const PAUSE = 400;

/** The policy of a channel: edited as text, tried without writing anything, put in force by who may. */
export function Rules({ admin }: { admin: boolean }) {
  const [channel, setChannel] = useState("train");
  const current = useQuery({
    queryKey: ["live", "curation", channel],
    queryFn: async ({ signal }) => (await get<Page<Active>>("curation", { channel }, signal)).items.find((each) => each.ended_at == null) ?? null,
  });
  return (
    <>
      <h2>Rules</h2>
      <p className="quiet">The first rule that holds for a trajectory decides: ready, excluded, or for a person to review. Nothing is rewritten, so other rules decide all anew.</p>
      <label className="inline">
        Channel <input value={channel} onChange={(event) => setChannel(event.target.value)} />
      </label>
      {current.isError && <Problem error={current.error} />}
      {current.isSuccess && <Editor key={`${channel} ${current.data?.version ?? ""}`} channel={channel} active={current.data} admin={admin} />}
    </>
  );
}

function Editor({ channel, active, admin }: { channel: string; active: Active | null; admin: boolean }) {
  const client = useQueryClient();
  const policy: Policy | null = active?.policy ?? null;
  const area = useRef<HTMLTextAreaElement>(null);
  const [text, setText] = useState((policy?.rules ?? []).join("\n"));
  const [other, setOther] = useState<NonNullable<Policy["default"]>>(policy?.default ?? "ready");
  const rules = rulesOf(text);
  const body = { channel, rules: rules.map((each) => each.text), default: other, name: policy?.name ?? "policy" };
  const wrong = useFault(text, body);
  const [tried, setTried] = useState<string | null>(null);
  const trying = useMutation({
    mutationFn: (sent: typeof body) => call<Preview>("POST", "curation/try", { body: sent }),
    onSuccess: (_, sent) => setTried(JSON.stringify(sent)),
  });
  const putting = useMutation({
    mutationFn: () => call<unknown>("PUT", "curation", { body }),
    onSuccess: () => client.invalidateQueries({ queryKey: ["live"] }),
  });
  const clearing = useMutation({
    mutationFn: () => call<unknown>("DELETE", "curation", { query: { channel } }),
    onSuccess: () => client.invalidateQueries({ queryKey: ["live"] }),
  });
  const said = trying.isError ? faultOf(trying.error, text) : null;
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        trying.mutate(body);
      }}
    >
      <textarea
        ref={area}
        aria-label="Rules, one a line"
        aria-invalid={wrong !== null}
        aria-describedby="fault"
        rows={Math.max(6, rules.length + 1)}
        spellCheck={false}
        placeholder={EXAMPLE}
        value={text}
        onChange={(event) => setText(event.target.value)}
      />
      <div id="fault">{(said ?? wrong) !== null && <Fault fault={(said ?? wrong)!} go={(from, to) => { area.current?.focus(); area.current?.setSelectionRange(from, to); }} />}</div>
      <div className="bar">
        <label className="inline">
          What no rule decides is{" "}
          <select value={other} onChange={(event) => setOther(event.target.value as typeof other)}>
            <option value="ready">ready</option>
            <option value="exclude">excluded</option>
            <option value="review">for review</option>
          </select>
        </label>
        <button disabled={rules.length === 0 || trying.isPending}>{trying.isPending ? "Trying" : "Try"}</button>
        {admin && (
          <button type="button" disabled={tried !== JSON.stringify(body) || putting.isPending} title={tried === JSON.stringify(body) ? "" : "Try it first"} onClick={() => putting.mutate()}>
            Put in force
          </button>
        )}
        {admin && active !== null && (
          <button type="button" disabled={clearing.isPending} onClick={() => clearing.mutate()}>
            Take out of force
          </button>
        )}
        <span className="quiet">
          {active === null ? "No policy is in force here: all that is complete may be served." : `In force: ${visible(policy?.name ?? "")} (${active.version.slice(0, 8)})${(active.pending ?? 0) > 0 ? `, ${count(active.pending!)} still to be decided` : ""}`}
        </span>
      </div>
      {!admin && <p className="quiet">{needs("admin", "Putting rules in force")} Trying them writes nothing.</p>}
      {trying.isError && said === null && <Problem error={trying.error} />}
      {(putting.isError || clearing.isError) && <Problem error={putting.error ?? clearing.error} />}
      {trying.data !== undefined && <Outcome preview={trying.data} rules={trying.variables?.rules ?? []} />}
    </form>
  );
}

/** What is wrong with a rule, under it: asked as one types, of one trajectory, so that it costs little. */
function useFault(text: string, body: object): RuleFault | null {
  const [fault, setFault] = useState<RuleFault | null>(null);
  const sent = JSON.stringify(body);
  useEffect(() => {
    setFault(null);
    if (rulesOf(text).length === 0) return;
    const asking = new AbortController();
    const timer = window.setTimeout(() => {
      call("POST", "curation/try", { body: { ...JSON.parse(sent), limit: 1, samples: 0 }, signal: asking.signal }).catch((error: unknown) => {
        if (!asking.signal.aborted && error instanceof ApiError) setFault(faultOf(error, text));
      });
    }, PAUSE);
    return () => {
      window.clearTimeout(timer);
      asking.abort();
    };
  }, [text, sent]);
  return fault;
}

function Fault({ fault, go }: { fault: RuleFault; go: (from: number, to: number) => void }) {
  const { before, at, after } = fault;
  return (
    <div className="wrong" role="alert">
      <strong>
        Line {fault.line}: {visible(fault.message)}
      </strong>{" "}
      {fault.hint !== null && <span>{visible(fault.hint)}</span>}
      <pre>
        {visible(before)}
        <mark>{visible(at)}</mark>
        {visible(after)}
      </pre>
      <button type="button" onClick={() => go(fault.from, fault.to)}>
        Go there
      </button>
    </div>
  );
}

/** What each rule would decide; 0 is the number of what none of them decides. */
function Outcome({ preview, rules }: { preview: Preview; rules: readonly string[] }) {
  const ids = (found: readonly string[] | undefined) => (
    <ul className="members">
      {(found ?? []).map((id) => (
        <li key={id}>
          <Link href={`/trajectories/${encodeURIComponent(id)}`}>{visible(id)}</Link>
        </li>
      ))}
    </ul>
  );
  return (
    <div role="status">
      <p>
        Nothing was written. {count(preview.trajectories)} trajectories were looked at{preview.whole ? "" : ", not all that there are"}.
      </p>
      <DataTable
        label="What each rule would decide"
        columns={["Rule", { name: "Decides", number: true }, "Such as"]}
        lines={Object.entries(preview.by_rule).map(([rule, number]) => ({
          key: rule,
          cells: [rule === "0" ? "none of them" : visible(`${rule}. ${rules[Number(rule) - 1] ?? ""}`), count(number), ids(preview.samples[rule])],
        }))}
      />
      <DataTable
        label="What would change"
        columns={["Change", { name: "Trajectories", number: true }]}
        lines={Object.entries(preview.changes).map(([change, number]) => ({ key: change, cells: [visible(change), count(number)] }))}
        empty="Nothing would be another than it is now."
      />
    </div>
  );
}
