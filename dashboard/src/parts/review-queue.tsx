import { keepPreviousData, useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { Link } from "wouter";

import { call, get, type Page, type Schemas } from "../api/client";
import { needs, useScopes } from "../api/scopes";
import { count, visible } from "../format";
import { useReviewer } from "../reviewer";
import { LabelForm } from "./label-form";
import { Corrections } from "./corrections";
import { MessageView } from "./message";
import { Problem } from "./problem";
import { ReplyEditor } from "./reply-editor";
import { UndoLine } from "./undo-line";
import { useKeys } from "./use-keys";
import { useUndo } from "./use-undo";
import { When } from "./when";
import { YouAre } from "./you-are";

type Review = Schemas["Review"];
type Counts = Schemas["ReviewCounts"];
type Verdict = "accept" | "reject";
const SHOWN = 3;
const ORIGINS: Record<string, string> = { rule: "a rule asks", manual: "somebody asks", disagreement: "annotators disagree", uncertainty: "a judge is unsure" };
const VERDICTS: Record<Verdict | "skip", string> = {
  accept: "Let it pass: it may be used for training",
  reject: "Keep it out of training",
  skip: "Leave it to others; you are not asked again",
};

/** The queue of what people are to decide, one after the other. */
export function ReviewQueue() {
  const { write, known } = useScopes();
  const [by] = useReviewer();
  const name = by.trim();
  const counts = useQuery({
    queryKey: ["live", "review-counts", name],
    placeholderData: keepPreviousData,
    queryFn: ({ signal }) => get<Counts>("review-counts", { by: name }, signal),
  });
  const waiting = useQuery({
    queryKey: ["live", "reviews", "open"],
    enabled: known && !write,
    queryFn: ({ signal }) => get<Page<Review>>("reviews", { review_state: "open", limit: 100 }, signal),
  });
  return (
    <>
      <h2>Reviews</h2>
      {waiting.isError && <Problem error={waiting.error} again={() => void waiting.refetch()} />}
      {counts.isError && <Problem error={counts.error} again={() => void counts.refetch()} />}
      {counts.data !== undefined && <Standing counts={counts.data} named={name !== ""} />}
      {write ? (
        <>
          <YouAre />
          {name === "" ? <p className="quiet">Say who you are, and press Enter: it goes with what you decide, and a review is yours while you look at it.</p> : <Queue key={name} by={name} left={counts.data?.waiting ?? 0} />}
        </>
      ) : (
        <>
          {known && <p className="quiet">{needs("write", "Deciding")}</p>}
          <ul>
            {(waiting.data?.items ?? []).map((review) => (
              <li key={review.review_id}>
                <Target review={review} />: {visible(review.reason)} <span className="quiet">({ORIGINS[review.origin] ?? review.origin}, <When at={review.created_at} />)</span>
              </li>
            ))}
          </ul>
        </>
      )}
    </>
  );
}

/** How many wait, and what became of the others, in words. */
function Standing({ counts, named }: { counts: Counts; named: boolean }) {
  const { waiting, skipped, claimed, accepted, rejected, whole } = counts;
  const least = whole ? "" : "at least ";
  const list = (review: string) => `/trajectories?where=${encodeURIComponent(`review == '${review}'`)}`;
  return (
    <dl className="facts queue-counts">
      <dt>To review</dt>
      <dd>
        <strong>
          {least}
          {count(waiting)}
        </strong>{" "}
        <span className="quiet">{named ? "for you or anybody else" : "for anybody"}</span>
      </dd>
      {named && (
        <>
          <dt>Skipped by you</dt>
          <dd>
            {count(skipped)} <span className="quiet">left to others, undecided</span>
          </dd>
        </>
      )}
      <dt>Being looked at</dt>
      <dd>
        {count(claimed)} <span className="quiet">{claimed === 0 ? "by nobody now" : named ? "now, the one below among them" : "now"}</span>
      </dd>
      <dt>Done</dt>
      <dd>
        {count(accepted + rejected)}{" "}
        <span className="quiet">
          <Link href={list("accepted")}>{count(accepted)} accepted</Link>, <Link href={list("rejected")}>{count(rejected)} rejected</Link>
        </span>
      </dd>
    </dl>
  );
}

function Target({ review }: { review: Review }) {
  const step = review.step_id == null ? "" : `?step=${encodeURIComponent(review.step_id)}`;
  return <Link href={`/trajectories/${encodeURIComponent(review.trajectory_id ?? "")}${step}`}>{visible(review.trajectory_id ?? "")}</Link>;
}

function Queue({ by, left }: { by: string; left: number }) {
  const client = useQueryClient();
  const [comment, setComment] = useState("");
  const claimed = useQuery({
    queryKey: ["review", by],
    queryFn: ({ signal }) => call<Review | null>("POST", "reviews/claim", { body: { by }, signal }),
  });
  const current = claimed.data ?? null;
  const next = async () => {
    setComment("");
    await client.invalidateQueries({ queryKey: ["review", by] });
    await client.invalidateQueries({ queryKey: ["live"] });
  };
  const undo = useUndo(next);
  const decide = useMutation({
    scope: undo.scope,
    mutationFn: ({ review, verdict }: { review: Review; verdict: Verdict | null }) =>
      verdict === null
        ? call<Review>("POST", `reviews/${review.review_id}/skip`, { body: { by } })
        : call<Review>("POST", `reviews/${review.review_id}/resolve`, { body: { by, verdict, comment: comment.trim() === "" ? null : comment.trim() } }),
    onSuccess: (review, { verdict }) => {
      if (verdict !== null) {
        const says = `${verdict === "accept" ? "Accepted" : "Rejected"} ${review.trajectory_id ?? ""}`;
        undo.push({ says, undo: () => call<Review>("POST", `reviews/${review.review_id}/undo`, { body: { by } }) });
      }
      return next();
    },
  });
  // What is mine now waits for nobody else.
  useEffect(() => void client.invalidateQueries({ queryKey: ["live", "review-counts"] }), [current?.review_id]);
  const refetch = claimed.refetch;
  useEffect(() => {
    if (current === null && left > 0) void refetch();
  }, [current, left, refetch]);
  const act = (verdict: Verdict | null) => {
    if (current !== null && !decide.isPending && !claimed.isFetching) decide.mutate({ review: current, verdict });
  };
  useKeys({ a: () => act("accept"), r: () => act("reject"), s: () => act(null), u: undo.back });
  const fault = claimed.error ?? decide.error;
  return (
    <section aria-label="Review">
      {fault !== null && <Problem error={fault} again={() => void claimed.refetch()} />}
      <UndoLine undo={undo} />
      {claimed.isSuccess && current === null && (
        <p className="empty">
          Nothing waits for you. Rules that end in review, checks that disagree and judges that are unsure fill the queue; the tab Rules has an example. What passed can be frozen and exported under <Link href="/datasets">Datasets</Link>.
        </p>
      )}
      {current !== null && (
        <>
          <dl className="facts">
            <dt>Trajectory</dt>
            <dd>
              <Target review={current} />
            </dd>
            <dt>Why</dt>
            <dd>
              {ORIGINS[current.origin] ?? current.origin}: {visible(current.reason)}
            </dd>
            <dt>Asked</dt>
            <dd>
              <When at={current.created_at} />
            </dd>
          </dl>
          <div className="bar">
            {(["accept", "reject", null] as const).map((verdict) => (
              <button key={String(verdict)} type="button" title={VERDICTS[verdict ?? "skip"]} disabled={decide.isPending || claimed.isFetching} onClick={() => act(verdict)}>
                {verdict ?? "skip"} <kbd>{(verdict ?? "skip")[0]}</kbd>
              </button>
            ))}
            <label className="inline">
              Comment <input value={comment} placeholder="why" onChange={(event) => setComment(event.target.value)} />
            </label>
          </div>
          <LabelForm key={`labels ${current.review_id}`} target={targetOf(current)} by={by} undo={undo} />
          <Asked key={current.review_id} review={current} by={by} undo={undo} />
        </>
      )}
    </section>
  );
}

const targetOf = (review: Review) => (review.step_id == null ? { trajectory_id: review.trajectory_id ?? "" } : { step_id: review.step_id });

/** What was asked and what was replied, of the step or of the trajectory's last one. */
function Asked({ review, by, undo }: { review: Review; by: string; undo: ReturnType<typeof useUndo> }) {
  const step = useQuery({
    queryKey: ["reply", review.trajectory_id, review.step_id],
    queryFn: async ({ signal }) => {
      if (review.step_id != null) return get<Schemas["Step"]>(`steps/${encodeURIComponent(review.step_id)}`, { include: "messages" }, signal);
      const asked = { trajectory_id: review.trajectory_id, order: "newest", limit: 1, include: "messages" };
      return (await get<Page<Schemas["Step"]>>("steps", asked, signal)).items[0] ?? null;
    },
  });
  if (step.isLoadingError) return <Problem error={step.error} />;
  if (step.data == null) return null;
  const prompt = step.data.prompt_messages ?? [];
  const before = prompt.slice(0, Math.max(0, prompt.length - SHOWN));
  return (
    <>
      {step.isError && <Problem error={step.error} />}
      {before.length > 0 && (
        <details>
          <summary>{count(before.length)} earlier message{before.length === 1 ? "" : "s"}</summary>
          {before.map((message, place) => (
            <MessageView key={place} message={message} />
          ))}
        </details>
      )}
      {prompt.slice(before.length).map((message, place) => (
        <MessageView key={place} message={message} />
      ))}
      {step.data.response_message != null && (
        <>
          <MessageView message={step.data.response_message} />
          <Corrections step={step.data} />
          <ReplyEditor step={step.data} by={by} undo={undo} />
        </>
      )}
    </>
  );
}
