import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { Link } from "wouter";

import { call, get, type Page, type Schemas } from "../api/client";
import { needs, useScopes } from "../api/scopes";
import { count, visible } from "../format";
import { useReviewer } from "../reviewer";
import { LabelForm } from "./label-form";
import { MessageView } from "./message";
import { Problem } from "./problem";
import { ReplyEditor } from "./reply-editor";
import { UndoLine } from "./undo-line";
import { useKeys } from "./use-keys";
import { useUndo } from "./use-undo";
import { When } from "./when";

type Review = Schemas["Review"];
type Verdict = "accept" | "reject";
const SHOWN = 3;

/** The queue of what people are to decide, one after the other. */
export function ReviewQueue() {
  const { write, known } = useScopes();
  const [by, setBy] = useReviewer();
  const waiting = useQuery({
    queryKey: ["live", "reviews", "open"],
    queryFn: ({ signal }) => get<Page<Review>>("reviews", { review_state: "open", limit: 100 }, signal),
  });
  return (
    <>
      <h2>Reviews</h2>
      {waiting.isError && <Problem error={waiting.error} again={() => void waiting.refetch()} />}
      {waiting.isSuccess && (
        <p className="quiet">
          {count(waiting.data.items.length)}
          {waiting.data.next_cursor === null ? "" : " or more"} {waiting.data.items.length === 1 ? "waits" : "wait"} for a person.
        </p>
      )}
      {write ? (
        <>
          <label className="inline">
            You are <input value={by} placeholder="a name" onChange={(event) => setBy(event.target.value)} />
          </label>
          {by.trim() === "" ? <p className="quiet">Say who you are: it goes with what you decide, and a review is yours while you look at it.</p> : <Queue key={by} by={by.trim()} left={waiting.data?.items.length ?? 0} />}
        </>
      ) : (
        <>
          {known && <p className="quiet">{needs("write", "Deciding")}</p>}
          <ul>
            {(waiting.data?.items ?? []).map((review) => (
              <li key={review.review_id}>
                <Target review={review} />: {visible(review.reason)} <span className="quiet">({review.origin}, <When at={review.created_at} />)</span>
              </li>
            ))}
          </ul>
        </>
      )}
    </>
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
  const refetch = claimed.refetch;
  useEffect(() => {
    if (current === null && left > 0) void refetch();
  }, [current, left, refetch]);
  const act = (verdict: Verdict | null) => {
    if (current !== null && !decide.isPending && !claimed.isFetching) decide.mutate({ review: current, verdict });
  };
  useKeys({ a: () => act("accept"), r: () => act("reject"), s: () => act(null), u: () => undo.latest !== null && !undo.undo.isPending && undo.undo.mutate() });
  const fault = claimed.error ?? decide.error;
  return (
    <section aria-label="Review">
      {fault !== null && <Problem error={fault} again={() => void claimed.refetch()} />}
      <UndoLine undo={undo} />
      {claimed.isSuccess && current === null && (
        <p className="empty">Nothing waits for you. Rules that end in review, checks that disagree and judges that are unsure fill the queue; the tab Rules has an example.</p>
      )}
      {current !== null && (
        <>
          <dl className="facts">
            <dt>Of</dt>
            <dd>
              <Target review={current} />
            </dd>
            <dt>Why</dt>
            <dd>
              {current.origin}: {visible(current.reason)}
            </dd>
            <dt>Asked</dt>
            <dd>
              <When at={current.created_at} />
            </dd>
          </dl>
          <div className="bar">
            {(["accept", "reject", null] as const).map((verdict) => (
              <button key={String(verdict)} type="button" disabled={decide.isPending || claimed.isFetching} onClick={() => act(verdict)}>
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
  if (step.isError) return <Problem error={step.error} />;
  if (step.data == null) return null;
  const prompt = step.data.prompt_messages ?? [];
  const before = prompt.slice(0, Math.max(0, prompt.length - SHOWN));
  return (
    <>
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
          <ReplyEditor step={step.data} by={by} undo={undo} />
        </>
      )}
    </>
  );
}
