import { useQuery } from "@tanstack/react-query";
import { useVirtualizer } from "@tanstack/react-virtual";
import { useRef, useState, type KeyboardEvent } from "react";
import { Link, useSearchParams } from "wouter";

import { get, type Page, type Schemas } from "../api/client";
import { branchesOf, type Placed } from "../branches";
import { count, decimal, visible } from "../format";
import { MessageView, Text } from "../parts/message";
import { Problem } from "../parts/problem";
import { TokenGrid } from "../parts/token-grid";
import { When } from "../parts/when";
import { sharedLength } from "../tokens";

type Step = Schemas["Step"];
const ROW = 44;
const PAGE = 1000;
const MOST_STEPS = 20_000;

/** One trajectory: its branches beside the step that is chosen, which is in the address. */
export function TrajectoryView({ id }: { id: string }) {
  const path = `trajectories/${encodeURIComponent(id)}`;
  const [asked, setAsked] = useSearchParams();
  const record = useQuery({ queryKey: ["live", path], queryFn: ({ signal }) => get<Schemas["Trajectory"]>(path, {}, signal) });
  const steps = useQuery({ queryKey: ["live", path, "steps"], queryFn: ({ signal }) => allSteps(id, signal) });
  if (record.isError) return <Problem error={record.error} again={() => void record.refetch()} />;
  if (steps.isError) return <Problem error={steps.error} again={() => void steps.refetch()} />;
  if (record.isPending || steps.isPending) return <p className="quiet">Loading</p>;
  const placed = branchesOf(steps.data);
  const chosen = asked.get("step") ?? placed[0]?.step.step_id ?? null;
  const choose = (step: string) => {
    const next = new URLSearchParams(asked);
    next.set("step", step);
    setAsked(next, { replace: true });
  };
  return (
    <>
      <p>
        <Link href="/trajectories">Trajectories</Link>
      </p>
      <h1>{visible(id)}</h1>
      <Facts record={record.data} />
      {placed.length === 0 ? (
        <p className="empty">It has no steps yet. They appear here as its agent calls the model.</p>
      ) : (
        <div className="split">
          <Timeline placed={placed} chosen={chosen} choose={choose} />
          {chosen !== null && <StepView key={chosen} id={chosen} />}
        </div>
      )}
    </>
  );
}

async function allSteps(id: string, signal: AbortSignal): Promise<Step[]> {
  const found: Step[] = [];
  let cursor: string | null = null;
  do {
    const page: Page<Step> = await get<Page<Step>>("steps", { trajectory_id: id, limit: PAGE, cursor }, signal);
    found.push(...page.items);
    cursor = page.next_cursor;
  } while (cursor !== null && found.length < MOST_STEPS);
  return found;
}

function Facts({ record }: { record: Schemas["Trajectory"] }) {
  return (
    <dl className="facts">
      <dt>Status</dt>
      <dd>{record.status}</dd>
      <dt>Readiness</dt>
      <dd className={`readiness ${record.readiness}`}>
        {record.readiness}
        {record.excluded_reason != null && `: ${visible(record.excluded_reason)}`}
      </dd>
      <dt>Rewards</dt>
      <dd>
        {Object.entries(record.rewards ?? {})
          .map(([name, value]) => `${visible(name)} ${decimal(value)}`)
          .join(", ") || "none"}
      </dd>
      <dt>Tokens</dt>
      <dd>
        {count(record.sampled_tokens ?? 0)} sampled in {count(record.step_count ?? 0)} steps
      </dd>
      <dt>Group</dt>
      <dd>
        {record.group_id == null ? (
          "none"
        ) : (
          <>
            <Link href={`/trajectories?where=${encodeURIComponent(`group_id == ${JSON.stringify(record.group_id)}`)}`}>{visible(record.group_id)}</Link>
            {", "}
            <Link href={`/optimization?group=${encodeURIComponent(record.group_id)}`}>its token tree</Link>
          </>
        )}
      </dd>
      <dt>Created</dt>
      <dd>
        <When at={record.created_at} />
      </dd>
    </dl>
  );
}

function Timeline({ placed, chosen, choose }: { placed: Placed<Step>[]; chosen: string | null; choose: (id: string) => void }) {
  const box = useRef<HTMLDivElement>(null);
  const at = Math.max(0, placed.findIndex((each) => each.step.step_id === chosen));
  const virtual = useVirtualizer({ count: placed.length, getScrollElement: () => box.current, estimateSize: () => ROW, overscan: 10 });
  const press = (event: KeyboardEvent) => {
    const step = { j: 1, ArrowDown: 1, k: -1, ArrowUp: -1 }[event.key];
    const next = step === undefined ? undefined : placed[at + step];
    if (next === undefined) return;
    event.preventDefault();
    choose(next.step.step_id);
    virtual.scrollToIndex(at + step!);
  };
  return (
    <div ref={box} className="timeline" role="listbox" aria-label="Steps" tabIndex={0} onKeyDown={press}>
      <div style={{ height: virtual.getTotalSize(), position: "relative" }}>
        {virtual.getVirtualItems().map((item) => {
          const { step, branch, fork } = placed[item.index]!;
          return (
            <div
              key={item.key}
              role="option"
              aria-selected={item.index === at}
              className={`step ${item.index === at ? "chosen" : ""} ${step.excluded_reason != null ? "out" : ""}`}
              style={{ transform: `translateY(${item.start}px)`, paddingLeft: 8 + Math.min(branch, 12) * 14 }}
              onClick={() => choose(step.step_id)}
            >
              <span>
                {step.step_index ?? item.index} {step.agent != null && <span className="quiet">{visible(step.agent)}</span>}
                {fork !== null && <span className="fork">{fork}</span>}
              </span>
              <span className="quiet">
                {count(step.prompt_length ?? 0)} + {count(step.response_length ?? 0)} tokens
                {step.reward != null && `, reward ${decimal(step.reward)}`}
                {step.excluded_reason != null && `, ${visible(step.excluded_reason)}`}
              </span>
            </div>
          );
        })}
      </div>
    </div>
  );
}

const TABS = ["messages", "tokens", "record"] as const;

function StepView({ id }: { id: string }) {
  const [tab, setTab] = useState<(typeof TABS)[number]>("messages");
  const path = `steps/${encodeURIComponent(id)}`;
  const step = useQuery({
    queryKey: ["step", id],
    queryFn: ({ signal }) => get<Step>(path, { include: "tokens,messages,logprobs" }, signal),
  });
  if (step.isError) return <Problem error={step.error} again={() => void step.refetch()} />;
  if (step.isPending) return <p className="quiet">Loading</p>;
  return (
    <section className="detail" aria-label="Step">
      <div role="tablist" className="tabs">
        {TABS.map((name) => (
          <button key={name} type="button" role="tab" aria-selected={tab === name} onClick={() => setTab(name)}>
            {name}
          </button>
        ))}
      </div>
      {tab === "messages" && <Messages step={step.data} />}
      {tab === "tokens" && <Tokens step={step.data} />}
      {tab === "record" && <Text plain text={JSON.stringify({ ...step.data, prompt_ids: undefined, response_ids: undefined, response_logprobs: undefined }, null, 1)} />}
    </section>
  );
}

function Messages({ step }: { step: Step }) {
  const prompt = step.prompt_messages ?? [];
  const results = new Map(prompt.filter((each) => each.role === "tool" && each.tool_call_id != null).map((each) => [each.tool_call_id!, each]));
  const called = new Set(prompt.flatMap((each) => (each.tool_calls ?? []).map((call) => call.id)));
  if (prompt.length === 0 && step.response_message == null) return <p className="quiet">This step has no messages.</p>;
  return (
    <>
      {prompt
        .filter((each) => each.role !== "tool" || !called.has(each.tool_call_id ?? ""))
        .map((each, number) => (
          <MessageView key={number} message={each} results={results} />
        ))}
      <h2>Reply</h2>
      {step.response_message != null && <MessageView message={step.response_message} />}
    </>
  );
}

function Tokens({ step }: { step: Step }) {
  const parent = step.parent_step_id ?? null;
  const before = useQuery({
    queryKey: ["step", parent],
    enabled: parent !== null,
    queryFn: ({ signal }) => get<Step>(`steps/${encodeURIComponent(parent!)}`, { include: "tokens,messages,logprobs" }, signal),
  });
  const shared = before.data === undefined ? null : sharedLength(before.data, step.prompt_ids ?? []);
  return <TokenGrid step={step} shared={shared} />;
}
