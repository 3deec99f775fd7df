import { useQuery } from "@tanstack/react-query";
import { useState, type ReactNode } from "react";
import { Link } from "wouter";

import { get, type Page, type Schemas } from "../api/client";
import { count, cut, decimal, visible } from "../format";
import { Feedbacks } from "./feedback";
import { JsonView } from "./json-view";
import { Problem } from "./problem";
import { When } from "./when";

type Step = Schemas["Step"];
const MOST_CONSUMERS = 8;
const METHODS = ["group_relative", "leave_one_out", "reinforce_plus_plus", "discounted", "last", "uniform"];

/** Why a step is served or not, what it was given, and what people and programs said of it. */
export function StepFacts({ step }: { step: Step }) {
  return (
    <div className="step-facts">
      <StandingView step={step} />
      <Handing id={step.step_id} />
      <Rewards step={step} />
      <Credit step={step} />
      <Labels step={step} />
      <Annotations step={step} />
      <Feedbacks step={step} />
    </div>
  );
}

/** A part with its title; what is asked for it is told where it fails. */
function Part<T>({ title, asked, children }: { title: string; asked: { data: T | undefined; error: unknown; isPending: boolean }; children: (data: T) => ReactNode }) {
  return (
    <section>
      <h2>{title}</h2>
      {asked.error != null ? <Problem error={asked.error} /> : asked.data === undefined ? <p className="quiet">Loading</p> : children(asked.data)}
    </section>
  );
}

function StandingView({ step }: { step: Step }) {
  const path = `steps/${encodeURIComponent(step.step_id)}/standing`;
  const asked = useQuery({ queryKey: ["live", path], queryFn: ({ signal }) => get<Schemas["Standing"]>(path, {}, signal) });
  return (
    <Part title="Why it is served or not" asked={asked}>
      {(found) => (
        <>
          <p className={`readiness ${found.readiness}`}>
            {found.readiness}
            {found.reasons.length > 0 && `: ${visible(found.reasons.join("; "))}`}
            {found.readiness === "complete" && `${found.reasons.length > 0 ? "; " : ": "}waits for a reward; methods that need none (sft) can take it now`}
          </p>
          {found.decisions.length > 0 && (
            <ul>
              {found.decisions.map((each, number) => (
                <li key={number}>
                  {each.by === "manual" ? "by hand" : `by the policy${each.rule == null ? "" : `, rule ${each.rule}`}`}, {each.step_id == null ? "on the trajectory" : "on this step"}: {each.verdict ?? "tags or weight alone"}
                  {each.reason != null && `, ${visible(each.reason)}`} {each.source !== "" && <span className="quiet">{visible(each.source)}</span>} {each.at > 0 && <When at={each.at} />}
                </li>
              ))}
            </ul>
          )}
          {found.rules.length > 0 && (
            <table>
              <tbody>
                {found.rules.map((each) => (
                  <tr key={each.number}>
                    <td>{each.decided ? "decided" : each.holds === null ? "not read" : each.holds ? "holds" : "does not hold"}</td>
                    <td>
                      <code>{visible(each.rule)}</code>
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
          )}
          {Object.entries(found.failures).map(([name, why]) => (
            <p key={name}>
              {visible(name)} failed: {visible(cut(why, 500).text)}
            </p>
          ))}
        </>
      )}
    </Part>
  );
}

/** Whether each consumer gets it, and the first reason why not. */
function Handing({ id }: { id: string }) {
  const asked = useQuery({
    queryKey: ["live", "handing", id],
    retry: false,
    queryFn: async ({ signal }) => {
      const names = Object.keys((await get<Schemas["PoolStats"]>("stats", {}, signal)).consumers ?? {});
      const found = await Promise.allSettled(
        names.slice(0, MOST_CONSUMERS).map((name) => get<Schemas["UnitExplanation"]>(`consumers/${encodeURIComponent(name)}/explain`, { target: id }, signal)),
      );
      return found.map((each, at) => ({ name: names[at]!, said: each.status === "fulfilled" ? each.value : null, error: each.status === "rejected" ? String(each.reason.message) : null }));
    },
  });
  return (
    <Part title="Consumers" asked={asked}>
      {(found) =>
        found.length === 0 ? (
          <p className="quiet">No consumer has leased from this pool yet.</p>
        ) : (
          <ul>
            {found.map(({ name, said, error }) => (
              <li key={name}>
                <strong>{visible(name)}</strong>: {said === null ? visible(error ?? "") : `${visible(said.message)}${said.deliveries > 0 ? `; handed out ${said.deliveries} times` : ""}`}
              </li>
            ))}
          </ul>
        )
      }
    </Part>
  );
}

function Rewards({ step }: { step: Step }) {
  const asked = useQuery({
    queryKey: ["live", "rewards", step.step_id],
    queryFn: ({ signal }) => get<Page<Schemas["Reward"]>>("rewards", { step_ids: step.step_id, trajectory_ids: step.trajectory_id }, signal),
  });
  return (
    <Part title="Rewards" asked={asked}>
      {({ items }) =>
        items.length === 0 ? (
          <p className="quiet">None yet, neither on this step nor on its trajectory. Absent is not zero.</p>
        ) : (
          <table>
            <thead>
              <tr>
                <th>Name</th>
                <th>Value</th>
                <th>On</th>
                <th>From</th>
                <th>When</th>
              </tr>
            </thead>
            <tbody>
              {items.map((each, number) => (
                <tr key={number}>
                  <td>{visible(each.name)}</td>
                  <td className="number">{decimal(each.value)}</td>
                  <td>{each.step_id == null ? "the trajectory" : "this step"}</td>
                  <td>
                    {visible(each.source)}
                    {each.details != null && <JsonView value={each.details} />}
                  </td>
                  <td>{each.created_at > 0 && <When at={each.created_at} />}</td>
                </tr>
              ))}
            </tbody>
          </table>
        )
      }
    </Part>
  );
}

function Credit({ step }: { step: Step }) {
  const [method, setMethod] = useState(METHODS[0]!);
  const [wanted, setWanted] = useState(false);
  const asked = useQuery({
    queryKey: ["credit", step.trajectory_id, method],
    enabled: wanted,
    retry: false,
    queryFn: ({ signal }) => get<Schemas["TrajectoryCredit"]>("credit", { trajectory_id: step.trajectory_id, method }, signal),
  });
  const own = asked.data?.steps.find((each) => each.step_id === step.step_id);
  return (
    <section>
      <h2>Credit</h2>
      <div className="inline">
        <label>
          By{" "}
          <select value={method} onChange={(event) => (setMethod(event.target.value), setWanted(true))}>
            {(asked.data?.methods ?? METHODS).map((each) => (
              <option key={each}>{each}</option>
            ))}
          </select>
        </label>
        {!wanted && (
          <button type="button" onClick={() => setWanted(true)}>
            Compute
          </button>
        )}
        {asked.isFetching && <span className="quiet">Computing</span>}
      </div>
      {asked.isError && <Problem error={asked.error} />}
      {asked.data !== undefined && (
        <p>
          {own === undefined ? "This step is not served, so it gets no credit." : `${own.credit.toPrecision(4)} on ${count(own.tokens)} tokens`},{" "}
          <span className="quiet">
            among {count(asked.data.members)} {asked.data.members === 1 ? "trajectory" : "trajectories"} as they stand now
          </span>
        </p>
      )}
    </section>
  );
}

/** Labels, and what evaluators said that set them. */
function Labels({ step }: { step: Step }) {
  const asked = useQuery({
    queryKey: ["live", "evaluations", step.step_id],
    queryFn: async ({ signal }) => {
      const of = (target: string, target_id: string) => get<Page<Schemas["Evaluation"]>>("evaluations", { target, target_id, limit: 50 }, signal);
      const [own, whole] = await Promise.all([of("step", step.step_id), of("trajectory", step.trajectory_id)]);
      return [...own.items, ...whole.items];
    },
  });
  const labels = Object.entries(step.labels ?? {});
  return (
    <section>
      <h2>Labels</h2>
      {labels.length === 0 ? <p className="quiet">None on this step.</p> : <JsonView value={step.labels} />}
      {asked.isError && <Problem error={asked.error} />}
      {(asked.data ?? []).map((each, number) => (
        <details key={number}>
          <summary>
            {visible(each.evaluator)} on {each.target === "step" ? "this step" : "the trajectory"}: {each.state === "failed" ? `failed, ${visible(cut(each.error ?? "", 200).text)}` : "said"}{" "}
            {Object.entries(each.values ?? {})
              .map(([name, value]) => `${visible(name)} ${decimal(value)}`)
              .join(", ")}
          </summary>
          {each.details != null ? <JsonView value={typeof each.details === "object" ? each.details : { said: each.details }} /> : <p className="quiet">It gave no evidence.</p>}
        </details>
      ))}
    </section>
  );
}

function Annotations({ step }: { step: Step }) {
  const asked = useQuery({
    queryKey: ["live", "annotations", step.step_id],
    enabled: (step.annotations ?? []).length > 0,
    queryFn: ({ signal }) => get<Page<Schemas["Annotation"]>>("annotations", { step_ids: step.step_id }, signal),
  });
  if ((step.annotations ?? []).length === 0) return null;
  return (
    <Part title="Annotations" asked={asked}>
      {({ items }) => (
        <ul>
          {items.map((each) => (
            <li key={each.name}>
              <strong>{visible(each.name)}</strong> <span className="quiet">{`${each.dtype} [${each.shape.join(", ")}] from ${visible(each.source)}`}</span> {each.per_token && <Link href={`/trajectories/${encodeURIComponent(step.trajectory_id)}?step=${encodeURIComponent(step.step_id)}&tab=tokens&colour=${encodeURIComponent(each.name)}`}>colour tokens by it</Link>}
            </li>
          ))}
        </ul>
      )}
    </Part>
  );
}
