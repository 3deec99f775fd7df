import { useMutation, useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Link } from "wouter";

import { ApiError, get, type Page, type Schemas } from "../api/client";
import { count, visible } from "../format";
import { missingOf, needsOf, standOf, unitOf } from "../methods";
import { DataTable } from "./data-table";
import { Problem } from "./problem";

type Report = Schemas["SpecReport"];
type Method = Schemas["MethodNeeds"];
type Answer = { method: Method; report: Report | null; error: ApiError | null };
const EXAMPLE = '{"method": "grpo", "groups": 8, "rollouts": 4}';

/** Whether the pool can give a consumer a batch, and what keeps the rest: for a spec, or for every method by itself. */
export function Readiness({ consumer }: { consumer: string }) {
  const [name, setName] = useState(consumer);
  const [spec, setSpec] = useState("");
  const path = `consumers/${encodeURIComponent(name.trim())}`;
  const check = useMutation({ mutationFn: () => get<Report>(`${path}/check`, { spec: spec.trim() }) });
  return (
    <>
      <form
        className="form"
        onSubmit={(event) => {
          event.preventDefault();
          check.mutate();
        }}
      >
        <label>
          For consumer
          <input required value={name} onChange={(event) => setName(event.target.value)} />
        </label>
        <label className="grown">
          Batch spec as JSON; empty: that of its latest batch
          <input value={spec} spellCheck={false} placeholder={EXAMPLE} onChange={(event) => setSpec(event.target.value)} />
        </label>
        <button disabled={name.trim() === "" || check.isPending}>Check</button>
      </form>
      {check.isError && <Problem error={check.error} />}
      {check.data !== undefined && <Findings report={check.data} />}
      <Methods path={path} />
      <Explain path={path} spec={spec} />
    </>
  );
}

function Findings({ report }: { report: Report }) {
  return (
    <div role="status">
      <p>
        <strong className={report.satisfied ? "good" : report.satisfied === false ? "bad" : "warm"}>
          {report.satisfied ? "There is a batch." : report.satisfied === false ? "There is no batch yet." : "It cannot be told from what was looked at."}
        </strong>{" "}
        {count(report.fitting)} of {count(report.looked_at)} {report.unit}s that were looked at fit, {count(report.wanted)} are wanted
        {report.stopped == null ? "" : `; looking stopped at ${report.stopped}`}.
      </p>
      {(report.notes ?? []).map((note) => (
        <p key={note} className="quiet">
          {visible(note)}
        </p>
      ))}
      {report.findings.length > 0 && (
        <DataTable
          label="What keeps the rest"
          columns={[{ name: "Units", number: true }, "What keeps them", "What to do", "Such as"]}
          lines={report.findings.map((each) => ({ key: `${each.reason} ${each.need ?? ""}`, cells: [count(each.units), visible(each.message), visible(each.hint), <code key="example">{visible(each.example)}</code>] }))}
        />
      )}
    </div>
  );
}

/** Every method with one unit of its own: they are asked one after the other, so that they take little of the server. */
function Methods({ path }: { path: string }) {
  const methods = useQuery({ queryKey: ["methods"], staleTime: Infinity, queryFn: ({ signal }) => get<Page<Method>>("methods", {}, signal) });
  const [answers, setAnswers] = useState<Answer[]>([]);
  const all = useMutation({
    mutationFn: async (wanted: readonly Method[]) => {
      setAnswers([]);
      for (const method of wanted) {
        const spec = JSON.stringify(method.unit === "group" ? { method: method.name, groups: 1, rollouts: method.rollouts } : { method: method.name, size: 1 });
        const answer = await get<Report>(`${path}/check`, { spec }).then(
          (report) => ({ method, report, error: null }),
          (error: unknown) => {
            if (!(error instanceof ApiError)) throw error;
            return { method, report: null, error };
          },
        );
        setAnswers((before) => [...before, answer]);
      }
    },
  });
  if (methods.isError) return <Problem error={methods.error} again={() => void methods.refetch()} />;
  if (methods.data === undefined) return null;
  return (
    <>
      <div className="bar">
        <button type="button" disabled={all.isPending} onClick={() => all.mutate(methods.data.items)}>
          {all.isPending ? `Asking, ${answers.length} of ${methods.data.items.length}` : "Ask for every method"}
        </button>
        <span className="quiet">Could it get one unit, and if not, why? Nothing is handed out. Methods without a reward take what has ended, the others wait for one.</span>
      </div>
      {all.isError && <Problem error={all.error} />}
      {answers.length > 0 && (
        <DataTable
          label="Methods"
          columns={["Method", "Unit", "Needs", "One unit of it", { name: "Fitting", number: true }, "What the others lack, and what to do"]}
          lines={answers.map(({ method, report, error }) => ({
            key: method.name,
            cells: [
              method.name,
              unitOf(method),
              needsOf(method),
              error !== null ? (
                <span key="state" className="bad">refused</span>
              ) : (
                <span key="state" className={standOf(report!).good ? "good" : "warm"}>{standOf(report!).says}</span>
              ),
              report === null ? "-" : `${count(report.fitting)} of ${count(report.looked_at)}`,
              visible(error?.message ?? (missingOf(report!) || "nothing")),
            ],
          }))}
        />
      )}
    </>
  );
}

function Explain({ path, spec }: { path: string; spec: string }) {
  const [target, setTarget] = useState("");
  const explain = useMutation({ mutationFn: () => get<Schemas["UnitExplanation"]>(`${path}/explain`, { target: target.trim(), spec: spec.trim() }) });
  return (
    <>
      <form
        className="form"
        onSubmit={(event) => {
          event.preventDefault();
          explain.mutate();
        }}
      >
        <label className="grown">
          Why is this one served, or not
          <input required value={target} spellCheck={false} placeholder="id of a step, a trajectory or a group" onChange={(event) => setTarget(event.target.value)} />
        </label>
        <button disabled={target.trim() === "" || explain.isPending}>Explain</button>
      </form>
      {explain.isError && <Problem error={explain.error} />}
      {explain.data !== undefined && (
        <p role="status">
          <strong className={explain.data.served ? "good" : "warm"}>{explain.data.served ? "Served." : "Not served."}</strong> {explain.data.unit} {visible(explain.data.key)}: {visible(explain.data.message)}
          {explain.data.batch_id != null && (
            <>
              {" "}
              In <Link href={`/consumption/${encodeURIComponent(explain.data.batch_id)}`}>{explain.data.batch_id}</Link>.
            </>
          )}
        </p>
      )}
    </>
  );
}
