import { useMutation, useQuery } from "@tanstack/react-query";
import { useState } from "react";

import { call, get, type Page, type Schemas } from "../api/client";
import { needs, useScopes } from "../api/scopes";
import { sourceOf, useReviewer } from "../reviewer";
import { lastWords } from "../said";
import { Problem } from "./problem";
import { SaidList } from "./said-list";
import { UndoLine } from "./undo-line";
import { useKeys } from "./use-keys";
import { useUndo } from "./use-undo";
import { YouAre } from "./you-are";

type Feedback = Schemas["Feedback"];
const THUMBS = [
  [1, "Good"],
  [0, "Bad"],
] as const;

/** What people said of a whole trajectory, and what one says now: a thumb, a score, a comment. */
export function TrajectoryFeedback({ id }: { id: string }) {
  const may = useScopes();
  const said = useQuery({
    queryKey: ["live", "feedback", "trajectory", id],
    queryFn: ({ signal }) => get<Page<Feedback>>("feedback", { trajectory_id: id, limit: 1000 }, signal),
  });
  // What is on one of its steps names the trajectory too, and is shown there.
  const own = (said.data?.items ?? []).filter((each) => each.step_id == null);
  return (
    <section aria-label="Said of the trajectory">
      {said.isError && <Problem error={said.error} />}
      {may.write ? <Rate id={id} said={own} again={() => void said.refetch()} /> : may.known && <p className="quiet">{needs("write", "Rating")}</p>}
      <SaidList said={own} />
    </section>
  );
}

function Rate({ id, said, again }: { id: string; said: readonly Feedback[]; again: () => void }) {
  const source = sourceOf(useReviewer()[0]);
  const [form, setForm] = useState<"score" | "comment" | null>(null);
  const [text, setText] = useState("");
  const undo = useUndo(again);
  const mine = (name: string) => lastWords(said).find((each) => each.kind === "rating" && each.name === name && each.source === source)?.value ?? null;
  const send = (body: object) => call("POST", "feedback", { body: { trajectory_id: id, source, ...body } });
  const rate = useMutation({
    mutationFn: ({ name, value }: { name: string; value: number | null }) => send({ kind: "rating", name, value }),
    onMutate: ({ name }) => mine(name),
    onSuccess: (_, { name, value }, before) => {
      undo.push({ says: value === null ? `Took the ${name} back` : name === "thumb" ? (value === 1 ? "Said that it is good" : "Said that it is bad") : `Rated it ${value}`, undo: () => send({ kind: "rating", name, value: before ?? null }) });
      setForm(null);
      again();
    },
  });
  const comment = useMutation({
    mutationFn: () => send({ kind: "comment", comment: text.trim() }),
    onSuccess: () => {
      setForm(null);
      again();
    },
  });
  useKeys({ u: () => undo.latest !== null && !undo.undo.isPending && undo.undo.mutate() });
  const thumb = mine("thumb");
  const wrong = text.trim() === "" || (form === "score" && !Number.isFinite(Number(text)));
  const open = (which: "score" | "comment") => {
    setForm(form === which ? null : which);
    setText(which === "score" && mine("score") !== null ? String(mine("score")) : "");
  };
  return (
    <>
      <div className="bar">
        {THUMBS.map(([value, name]) => (
          <button key={value} type="button" className="thumb" aria-pressed={thumb === value} disabled={rate.isPending} onClick={() => rate.mutate({ name: "thumb", value: thumb === value ? null : value })}>
            {name}
          </button>
        ))}
        <button type="button" aria-expanded={form === "score"} onClick={() => open("score")}>
          Score
        </button>
        <button type="button" aria-expanded={form === "comment"} onClick={() => open("comment")}>
          Comment
        </button>
        <YouAre />
      </div>
      {form !== null && (
        <form
          className="feedback-form"
          onSubmit={(event) => {
            event.preventDefault();
            if (wrong) return;
            if (form === "score") rate.mutate({ name: "score", value: Number(text) });
            else comment.mutate();
          }}
        >
          {form === "score" ? (
            <label>
              Score, a number <input value={text} autoFocus inputMode="decimal" onChange={(event) => setText(event.target.value)} />
            </label>
          ) : (
            <label className="across">
              Comment <input value={text} autoFocus onChange={(event) => setText(event.target.value)} />
            </label>
          )}
          <button disabled={wrong || rate.isPending || comment.isPending}>Send</button>
          {form === "comment" && <span className="quiet">It stays on record: a comment cannot be taken back.</span>}
          {form === "score" && <span className="quiet">Feedback, not a reward: it changes nothing that is served.</span>}
        </form>
      )}
      {(rate.isError || comment.isError) && <Problem error={rate.error ?? comment.error} />}
      <UndoLine undo={undo} />
    </>
  );
}
