import { useIsFetching, useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect, useRef, useState } from "react";

import { call, get, type Page, type Schemas } from "../api/client";
import { useScopes } from "../api/scopes";
import { valueOf } from "../bulk";
import { sourceOf, useReviewer } from "../reviewer";
import { Problem } from "./problem";
import { SaidList } from "./said-list";
import { YouAre } from "./you-are";

type Step = Schemas["Step"];
type Feedback = Schemas["Feedback"];
type Kind = "rating" | "label" | "comment" | "correction";
const KINDS: Record<Kind, string> = { rating: "Rate", label: "Label", comment: "Comment", correction: "Correct the reply" };

/** What people said of a step, and what one says now. */
export function Feedbacks({ step }: { step: Step }) {
  const may = useScopes();
  const [kind, setKind] = useState<Kind | null>(null);
  const said = useQuery({
    queryKey: ["live", "feedback", step.step_id],
    queryFn: ({ signal }) => get<Page<Feedback>>("feedback", { step_id: step.step_id, limit: 1000 }, signal),
  });
  // Who followed a link to here is brought here until all that stands above has come, and then left alone.
  const own = useRef<HTMLElement>(null);
  const wanted = useRef(window.location.hash === "#feedback");
  const coming = useIsFetching({ queryKey: ["live"] }) > 0 || said.isPending;
  useEffect(() => {
    if (!wanted.current) return;
    own.current?.scrollIntoView();
    wanted.current = coming;
  }, [coming]);
  return (
    <section ref={own} id="feedback" aria-label="Feedback">
      <h2>Feedback</h2>
      {said.isError && <Problem error={said.error} />}
      {said.data?.items.length === 0 && <p className="quiet">Nobody has said anything of this step.</p>}
      <SaidList said={said.data?.items ?? []} reply={step.response_message ?? null} />
      {may.write ? (
        <>
          <div className="bar">
            {(Object.keys(KINDS) as Kind[]).map((each) => (
              <button key={each} type="button" aria-expanded={kind === each} disabled={each === "correction" && step.response_message == null} onClick={() => setKind(kind === each ? null : each)}>
                {KINDS[each]}
              </button>
            ))}
            <span className="quiet">Feedback only: a rating does not change the reward, which is given at the top of the page.</span>
          </div>
          {kind !== null && <YouAre />}
          {kind !== null && <Form key={kind} kind={kind} step={step} done={() => setKind((now) => (now === kind ? null : now))} />}
        </>
      ) : (
        may.known && <p className="quiet">A key with the scope write may give feedback; this one reads.</p>
      )}
    </section>
  );
}

const replyOf = (step: Step): string => {
  const content = step.response_message?.content;
  return typeof content === "string" ? content : (content ?? []).map((part) => ("text" in part ? part.text : "")).join("");
};

function Form({ kind, step, done }: { kind: Kind; step: Step; done: () => void }) {
  const client = useQueryClient();
  const [name, setName] = useState("");
  const [value, setValue] = useState(kind === "correction" ? replyOf(step) : kind === "rating" ? "1" : "");
  const [comment, setComment] = useState("");
  const source = sourceOf(useReviewer()[0]);
  const send = useMutation({
    mutationFn: () => {
      const own: Record<Kind, object> = {
        rating: { value: Number(value), name: name.trim() || null },
        label: { value: value === "" ? true : valueOf(value), name: name.trim() },
        comment: {},
        // Everything else that the reply has, such as calls of tools, stays.
        correction: { value: { ...step.response_message, content: value } },
      };
      return call("POST", "feedback", { body: { kind, step_id: step.step_id, source, comment: comment.trim() || null, ...own[kind] } });
    },
    onSuccess: async () => {
      done();
      await client.invalidateQueries({ queryKey: ["live"] });
      await client.invalidateQueries({ queryKey: ["step", step.step_id] });
    },
  });
  const wrong =
    (kind === "rating" && (value.trim() === "" || !Number.isFinite(Number(value)))) ||
    (kind === "label" && name.trim() === "") ||
    (kind === "comment" && comment.trim() === "") ||
    (kind === "correction" && value === replyOf(step));
  return (
    <form
      className="feedback-form"
      onSubmit={(event) => {
        event.preventDefault();
        if (!wrong) send.mutate();
      }}
    >
      {kind === "label" && (
        <label>
          Name <input value={name} autoFocus onChange={(event) => setName(event.target.value)} />
        </label>
      )}
      {(kind === "rating" || kind === "label") && (
        <label>
          Value <input value={value} inputMode={kind === "rating" ? "decimal" : "text"} placeholder={kind === "label" ? "true" : ""} onChange={(event) => setValue(event.target.value)} />
        </label>
      )}
      {kind === "correction" && (
        <label className="across">
          What should have been said
          <textarea value={value} rows={10} autoFocus onChange={(event) => setValue(event.target.value)} />
        </label>
      )}
      <label className="across">
        Comment <input value={comment} onChange={(event) => setComment(event.target.value)} />
      </label>
      <button disabled={wrong || send.isPending}>Send</button>
      {send.isError && <Problem error={send.error} />}
    </form>
  );
}
