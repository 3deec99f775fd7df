import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { Link } from "wouter";

import { call, get, type Page, type Schemas, type SignedIn } from "../api/client";
import { count, visible } from "../format";
import { MessageView } from "../parts/message";
import { Problem } from "../parts/problem";
import { Rules } from "../parts/rules";
import { When } from "../parts/when";

type Review = Schemas["Review"];
const SEEN = ["user", "developer"];
const NAME = "reviewer";

/** The queue of what people are to decide, one after the other, and the rules that fill it. */
export function Curation() {
  const who = useQuery({ queryKey: ["session"], queryFn: ({ signal }) => get<SignedIn>("session", {}, signal) });
  const [by, setBy] = useState(() => sessionStorage.getItem(NAME) ?? "");
  useEffect(() => sessionStorage.setItem(NAME, by), [by]);
  const waiting = useQuery({
    queryKey: ["live", "reviews", "open"],
    queryFn: ({ signal }) => get<Page<Review>>("reviews", { review_state: "open", limit: 100 }, signal),
  });
  const may = (who.data?.scopes ?? []).some((scope) => scope === "write" || scope === "admin");
  return (
    <>
      <h1>Curation</h1>
      <h2>Reviews</h2>
      {waiting.isError && <Problem error={waiting.error} again={() => void waiting.refetch()} />}
      {waiting.isSuccess && (
        <p className="quiet">
          {count(waiting.data.items.length)}
          {waiting.data.next_cursor === null ? "" : " or more"} wait for a person.
        </p>
      )}
      {may ? (
        <>
          <label className="inline">
            You are <input value={by} placeholder="a name" onChange={(event) => setBy(event.target.value)} />
          </label>
          {by.trim() !== "" && <Queue key={by} by={by.trim()} left={waiting.data?.items.length ?? 0} />}
        </>
      ) : (
        <p className="quiet">A key with the scope write may decide; this one reads.</p>
      )}
      <Rules admin={who.data?.scopes.includes("admin") ?? false} />
    </>
  );
}

function Queue({ by, left }: { by: string; left: number }) {
  const client = useQueryClient();
  const [done, setDone] = useState<Review | null>(null);
  const claimed = useQuery({
    queryKey: ["review", by],
    queryFn: ({ signal }) => call<Review | null>("POST", "reviews/claim", { body: { by }, signal }),
  });
  const current = claimed.data ?? null;
  const after = async (settled: Review | null) => {
    setDone(settled);
    await client.invalidateQueries({ queryKey: ["review", by] });
    await client.invalidateQueries({ queryKey: ["live"] });
  };
  const decide = useMutation({
    mutationFn: (act: { review: Review; verdict: "accept" | "reject" | null }) =>
      act.verdict === null
        ? call<Review>("POST", `reviews/${act.review.review_id}/skip`, { body: { by } })
        : call<Review>("POST", `reviews/${act.review.review_id}/resolve`, { body: { by, verdict: act.verdict } }),
    onSuccess: (review, act) => after(act.verdict === null ? null : review),
  });
  const undo = useMutation({
    mutationFn: (review: Review) => call<Review>("POST", `reviews/${review.review_id}/undo`, { body: { by } }),
    onSuccess: () => after(null),
  });
  const refetch = claimed.refetch;
  useEffect(() => {
    if (current === null && left > 0) void refetch();
  }, [current, left, refetch]);
  useEffect(() => {
    const press = (event: KeyboardEvent) => {
      if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|TEXTAREA|SELECT)$/.test((event.target as HTMLElement).tagName)) return;
      const verdict = ({ a: "accept", r: "reject", s: null } as const)[event.key as "a" | "r" | "s"];
      if (verdict !== undefined && current !== null && !decide.isPending) decide.mutate({ review: current, verdict });
      else if (event.key === "u" && done !== null && !undo.isPending) undo.mutate(done);
    };
    window.addEventListener("keydown", press);
    return () => window.removeEventListener("keydown", press);
  }, [current, done, decide, undo]);
  const fault = claimed.error ?? decide.error ?? undo.error;
  return (
    <section aria-label="Review">
      {fault !== null && <Problem error={fault} again={() => void claimed.refetch()} />}
      {done !== null && (
        <p role="status">
          {done.verdict === "accept" ? "Accepted" : "Rejected"} {visible(done.trajectory_id ?? "")}.{" "}
          <button type="button" onClick={() => undo.mutate(done)}>
            Undo <kbd>u</kbd>
          </button>
        </p>
      )}
      {claimed.isSuccess && current === null && (
        <p className="empty">Nothing waits for you. Rules that end in review, checks that disagree and judges that are unsure fill the queue.</p>
      )}
      {current !== null && (
        <>
          <dl className="facts">
            <dt>Of</dt>
            <dd>
              <Link href={`/trajectories/${encodeURIComponent(current.trajectory_id ?? "")}${current.step_id == null ? "" : `?step=${encodeURIComponent(current.step_id)}`}`}>
                {visible(current.trajectory_id ?? "")}
              </Link>
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
          <LastReply review={current} />
          <div className="bar">
            {(["accept", "reject", null] as const).map((verdict) => (
              <button key={String(verdict)} type="button" disabled={decide.isPending} onClick={() => decide.mutate({ review: current, verdict })}>
                {verdict ?? "skip"} <kbd>{(verdict ?? "skip")[0]}</kbd>
              </button>
            ))}
          </div>
        </>
      )}
    </section>
  );
}

/** What was asked last and what was replied, of the step or of the trajectory's last one. */
function LastReply({ review }: { review: Review }) {
  const step = useQuery({
    queryKey: ["reply", review.trajectory_id, review.step_id],
    queryFn: async ({ signal }) => {
      if (review.step_id != null) {
        return get<Schemas["Step"]>(`steps/${encodeURIComponent(review.step_id)}`, { include: "messages" }, signal);
      }
      const asked = { trajectory_id: review.trajectory_id, order: "newest", limit: 1, include: "messages" };
      return (await get<Page<Schemas["Step"]>>("steps", asked, signal)).items[0] ?? null;
    },
  });
  if (step.isError) return <Problem error={step.error} />;
  if (step.data == null) return null;
  const last = (step.data.prompt_messages ?? []).filter((each) => SEEN.includes(each.role)).at(-1);
  return (
    <>
      {last !== undefined && <MessageView message={last} />}
      {step.data.response_message != null && <MessageView message={step.data.response_message} />}
    </>
  );
}
