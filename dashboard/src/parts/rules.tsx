import { useMutation, useQuery, useQueryClient, type UseMutationResult } from "@tanstack/react-query";
import { useEffect, useRef, useState } from "react";
import { Link } from "wouter";

import { ApiError, call, get, type Page, type Schemas } from "../api/client";
import { needs } from "../api/scopes";
import { count, counted, visible } from "../format";
import { faultOf, rulesOf, verdictOf, type RuleFault } from "../rules";
import { DataTable } from "./data-table";
import { Problem } from "./problem";

type Policy = Schemas["CurationPolicy"];
type Active = Schemas["ActivePolicy"];
type Preview = Schemas["CurationPreview"];
type Body = { channel: string; rules: string[]; default: NonNullable<Policy["default"]>; name: string };
const EXAMPLE = 'when status == "truncated" then exclude "ran out of turns"\nwhen has label.check.loop then review "repeats itself" 0.5';
const PAUSE = 400;
/** Kept back until somebody has looked: such a reason begins so. */
const REVIEWED = "excluded and excluded_reason like 'review: %'";

/** The policy of a channel: edited as text, tried without writing anything, put in force by who may. */
export function Rules({ admin }: { admin: boolean }) {
  const [channel, setChannel] = useState("train");
  // Kept here, as another policy in force begins the editor anew, and what was tried is to stay in sight.
  const trying = useMutation({ mutationFn: (sent: Body) => call<Preview>("POST", "curation/try", { body: sent }) });
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
      {current.data !== undefined && <Editor key={`${channel} ${current.data?.version ?? ""}`} channel={channel} active={current.data} admin={admin} trying={trying} />}
    </>
  );
}

function Editor({ channel, active, admin, trying }: { channel: string; active: Active | null; admin: boolean; trying: UseMutationResult<Preview, Error, Body> }) {
  const client = useQueryClient();
  const policy: Policy | null = active?.policy ?? null;
  const area = useRef<HTMLTextAreaElement>(null);
  const [text, setText] = useState((policy?.rules ?? []).join("\n"));
  const [other, setOther] = useState<NonNullable<Policy["default"]>>(policy?.default ?? "ready");
  const rules = rulesOf(text);
  const body: Body = { channel, rules: rules.map((each) => each.text), default: other, name: policy?.name ?? "policy" };
  const wrong = useFault(text, body);
  const [sure, setSure] = useState(false);
  const here = trying.variables?.channel === channel;
  const tried = here && trying.isSuccess && JSON.stringify(trying.variables) === JSON.stringify(body);
  const putting = useMutation({
    mutationFn: () => call<unknown>("PUT", "curation", { body }),
    onSuccess: () => client.invalidateQueries({ queryKey: ["live"] }),
  });
  const clearing = useMutation({
    mutationFn: () => call<unknown>("DELETE", "curation", { query: { channel } }),
    onSuccess: () => client.invalidateQueries({ queryKey: ["live"] }),
  });
  const said = here && trying.isError ? faultOf(trying.error, text) : null;
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
          <button type="button" disabled={!tried || putting.isPending} title={tried ? "" : "Try it first"} onClick={() => putting.mutate()}>
            Put in force
          </button>
        )}
        {admin && active !== null && !sure && (
          <button type="button" onClick={() => setSure(true)}>
            Take out of force
          </button>
        )}
        {sure && (
          <span className="inline">
            What rules keep back may be served then.{" "}
            <button type="button" className="bad" disabled={clearing.isPending} autoFocus onClick={() => clearing.mutate()}>
              Take them out
            </button>{" "}
            <button type="button" onClick={() => setSure(false)}>
              Keep them
            </button>
          </span>
        )}
      </div>
      <p className="quiet" role="status">
        {active === null ? (
          "No policy is in force here: nothing that has ended is kept back. Trajectories without a reward wait for one; methods that need none, as sft, can take them now."
        ) : (
          <>
            In force: {visible(active.policy.name ?? "")} ({active.version.slice(0, 8)})
            {(active.pending ?? 0) > 0 ? `, ${count(active.pending!)} still to be decided` : ""}
            <Standing channel={channel} policy={`${active.version} ${active.pending ?? 0}`} />
          </>
        )}
      </p>
      {!admin && <p className="quiet">{needs("admin", "Putting rules in force")} Trying them writes nothing.</p>}
      {here && trying.isError && said === null && <Problem error={trying.error} />}
      {(putting.isError || clearing.isError) && <Problem error={putting.error ?? clearing.error} />}
      {here && trying.isSuccess && <Outcome preview={trying.data} sent={trying.variables} />}
    </form>
  );
}

/** How trajectories of the channel stand. Counted anew for another `policy`, and now and then. */
function Standing({ channel, policy }: { channel: string; policy: string }) {
  const found = useQuery({
    queryKey: ["scan", "standing", channel, policy],
    refetchInterval: 15_000,
    queryFn: async ({ signal }) => {
      const facets = (where: string | null) => get<Schemas["Facets"]>("facets", { channel, where }, signal);
      return Promise.all([facets(null), facets(REVIEWED)]);
    },
  });
  if (found.data === undefined) return null;
  const [all, review] = found.data;
  const of = (name: string) => all.values.readiness?.find((each) => each.value === name)?.count ?? 0;
  const link = (where: string, says: string) => <Link href={`/trajectories?where=${encodeURIComponent(`channel == ${JSON.stringify(channel)} and ${where}`)}`}>{says}</Link>;
  return (
    <>
      : {link(`excluded and not (${REVIEWED})`, `${count(Math.max(0, of("excluded") - review.looked))} excluded`)}, <Link href="/curation">{count(review.looked)} to review</Link>, {link("ready", `${count(of("ready"))} ready`)}
      {of("complete") > 0 && <>, {link("readiness == 'complete'", `${count(of("complete"))} without a reward yet`)}</>}
      {all.whole ? "" : `, of the newest ${count(all.looked)}`}.
    </>
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

const WORDS = { ready: "ready", exclude: "excluded", review: "for review", mark: "marked" } as const;

/** What each rule would decide; 0 is the number of what none of them decides. */
function Outcome({ preview, sent }: { preview: Preview; sent: Body }) {
  const rule = (number: string) => sent.rules[Number(number) - 1] ?? "";
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
        Trying wrote nothing. {counted(preview.trajectories, "trajectory was", "trajectories were")} looked at{preview.whole ? "" : ", not all that there are"}.
      </p>
      <DataTable
        label="What each rule would decide"
        columns={["Rule", "They are", { name: "Decides", number: true }, "Such as"]}
        lines={Object.entries(preview.by_rule).map(([at, number]) => ({
          key: at,
          cells: [at === "0" ? "none of them" : visible(`${at}. ${rule(at)}`), WORDS[at === "0" ? sent.default : verdictOf(rule(at))], count(number), ids(preview.samples[at])],
        }))}
      />
      <DataTable
        label="What would change"
        columns={["Change", { name: "Trajectories", number: true }]}
        lines={Object.entries(preview.changes).map(([change, number]) => ({ key: change, cells: [visible(change), count(number)] }))}
        empty="Nothing would be another than it is now."
      />
      <p className="quiet">What is for review is excluded too, until a person accepts it.</p>
    </div>
  );
}
