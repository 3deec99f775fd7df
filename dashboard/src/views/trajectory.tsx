import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect, useMemo, useRef } from "react";
import { Link, useSearchParams } from "wouter";

import { get, type Page, type Schemas } from "../api/client";
import { useEvents } from "../api/live";
import { branchesOf } from "../branches";
import { count, decimal, exact, visible } from "../format";
import { CopyText } from "../parts/copy-text";
import { Problem } from "../parts/problem";
import { RewardForm } from "../parts/reward-form";
import { StepTimeline } from "../parts/step-timeline";
import { StepView, useStepAhead } from "../parts/step-view";
import { TrajectoryFeedback } from "../parts/trajectory-feedback";
import { When } from "../parts/when";
import "./trajectory.css";

type Step = Schemas["Step"];
const PAGE = 1000;
const MOST_STEPS = 20_000;
const PAUSE = 500;

/** One trajectory: its branches beside the step that is chosen, which is in the address. */
export function TrajectoryView({ id }: { id: string }) {
  const path = `trajectories/${encodeURIComponent(id)}`;
  const [asked, setAsked] = useSearchParams();
  const record = useQuery({ queryKey: ["trajectory", id], queryFn: ({ signal }) => get<Schemas["Trajectory"]>(path, {}, signal) });
  const steps = useQuery({ queryKey: ["trajectory", id, "steps"], structuralSharing: false, queryFn: ({ signal }) => allSteps(id, signal) });
  useOwnEvents(id);
  useStepAhead(asked);
  const placed = useMemo(() => branchesOf(steps.data?.steps ?? []), [steps.data]);
  if (record.isLoadingError) return <Problem error={record.error} again={() => void record.refetch()} />;
  if (steps.isLoadingError) return <Problem error={steps.error} again={() => void steps.refetch()} />;
  if (record.isPending || steps.isPending) return <p className="quiet">Loading</p>;
  const chosen = asked.get("step") ?? placed[0]?.step.step_id ?? null;
  const row = placed.findIndex((each) => each.step.step_id === chosen);
  const choose = (step: string) =>
    setAsked(
      (before) => {
        const next = new URLSearchParams(before);
        next.set("step", step);
        return next;
      },
      { replace: true },
    );
  // What the prompt is compared with: the step that it goes on from, else the one before it.
  const before = placed[row]?.step.parent_step_id ?? placed[row - 1]?.step.step_id ?? null;
  return (
    <>
      <p>
        <Link href="/trajectories">Trajectories</Link>
      </p>
      <div className="bar">
        <h1 className="whole-id">{visible(id)}</h1>
        <CopyText text={id} name="Copy the id" />
      </div>
      {record.isError && <Problem error={record.error} again={() => void record.refetch()} />}
      {steps.isError && <Problem error={steps.error} again={() => void steps.refetch()} />}
      <Opening id={id} />
      <Facts record={record.data} branches={placed.reduce((most, each) => Math.max(most, each.branch + 1), 0)} />
      <div className="judging">
        <TrajectoryFeedback id={id} />
        <RewardForm id={id} />
      </div>
      {placed.length === 0 ? (
        <p className="empty">It has no steps yet. They appear here as its agent calls the model.</p>
      ) : (
        <div className="split">
          <div>
            <StepTimeline placed={placed} chosen={chosen} choose={choose} />
            {!steps.data.whole && <p className="quiet">Only the first {count(MOST_STEPS)} steps are shown.</p>}
          </div>
          {chosen !== null && <StepView key={chosen} id={chosen} before={before} />}
        </div>
      )}
    </>
  );
}

async function allSteps(id: string, signal: AbortSignal): Promise<{ steps: Step[]; whole: boolean }> {
  const steps: Step[] = [];
  let cursor: string | null = null;
  do {
    const page: Page<Step> = await get<Page<Step>>("steps", { trajectory_id: id, limit: PAGE, cursor }, signal);
    steps.push(...page.items);
    cursor = page.next_cursor;
  } while (cursor !== null && steps.length < MOST_STEPS);
  return { steps, whole: cursor === null };
}

/** Asks anew when something of this trajectory happens, and not whenever anything does. */
function useOwnEvents(id: string): void {
  const client = useQueryClient();
  const waiting = useRef<number | null>(null);
  useEffect(() => () => window.clearTimeout(waiting.current ?? undefined), []);
  useEvents((events) => {
    if (waiting.current !== null || (events.length > 0 && !events.some((event) => event.trajectory_id === id))) return;
    waiting.current = window.setTimeout(() => {
      waiting.current = null;
      void client.invalidateQueries({ queryKey: ["trajectory", id] });
    }, PAUSE);
  });
}

/** What the agent was asked. */
function Opening({ id }: { id: string }) {
  const asked = useQuery({ queryKey: ["trajectory", id, "preview"], queryFn: ({ signal }) => get<Page<Schemas["TrajectoryPreview"]>>("previews", { trajectory_ids: id }, signal) });
  const said = asked.data?.items[0];
  if (said === undefined) return null;
  return (
    <p className="opening">
      {said.prompt === null ? <span className="quiet">It says nothing of what was asked.</span> : visible(said.prompt)}
      {said.review !== null && <span className={`review ${said.review}`}> {said.review === "waiting" || said.review === "skipped" ? "It waits for a review" : `A reviewer ${said.review} it`}.</span>}
    </p>
  );
}

function Facts({ record, branches }: { record: Schemas["Trajectory"]; branches: number }) {
  const labels = Object.entries(record.labels ?? {});
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
        {count(record.sampled_tokens ?? 0)} sampled in {count(record.step_count ?? 0)} steps{branches > 1 && ` on ${count(branches)} branches`}
      </dd>
      <dt>Group</dt>
      <dd>
        {record.group_id == null ? (
          "none"
        ) : (
          <>
            <Link className="tail" title={visible(record.group_id)} href={`/trajectories?where=${encodeURIComponent(`group_id == ${JSON.stringify(record.group_id)}`)}`}>
              <bdi>{visible(record.group_id)}</bdi>
            </Link>
            {record.group_size !== 1 && (
              <>
                <Link href={`/curation?${new URLSearchParams({ tab: "compare", group: record.group_id, own: record.trajectory_id })}`}>compare with its others</Link>,{" "}
              </>
            )}
            <Link href={`/optimization?group=${encodeURIComponent(record.group_id)}`}>its token tree</Link>
          </>
        )}
      </dd>
      {labels.length > 0 && (
        <>
          <dt>Labels</dt>
          <dd>{visible(labels.map(([name, value]) => `${name}: ${JSON.stringify(value)}`).join(", "))}</dd>
        </>
      )}
      <dt>Created</dt>
      <dd>
        <When at={record.created_at} />
        {record.completed_at != null && <span title={exact(record.completed_at)}>, took {decimal(Math.round(10 * (record.completed_at - (record.created_at ?? 0))) / 10)} s</span>}
      </dd>
    </dl>
  );
}
