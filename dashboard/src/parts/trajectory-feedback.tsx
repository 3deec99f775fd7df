import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
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
  const client = useQueryClient();
  const ofSaid = {
    queryKey: ["live", "feedback", "trajectory", id],
    queryFn: async ({ signal }: { signal: AbortSignal }) => {
      const { items } = await get<Page<Feedback>>("feedback", { trajectory_id: id, limit: 1000 }, signal);
      // What is on one of its steps names the trajectory too, and is shown there.
      return items.filter((each) => each.step_id == null);
    },
  };
  const said = useQuery(ofSaid);
  return (
    <section aria-label="Said of the trajectory">
      {said.isError && <Problem error={said.error} />}
      {may.write ? <Rate id={id} said={said.data ?? []} known={() => client.fetchQuery({ ...ofSaid, staleTime: Infinity })} again={said.refetch} /> : may.known && <p className="quiet">{needs("write", "Rating")}</p>}
      <SaidList said={said.data ?? []} />
    </section>
  );
}

type RateProps = { id: string; said: readonly Feedback[]; known: () => Promise<readonly Feedback[]>; again: () => Promise<unknown> };

/** `known` waits for what was said, which may not have come yet. */
function Rate({ id, said, known, again }: RateProps) {
  const source = sourceOf(useReviewer()[0]);
  const [form, setForm] = useState<"score" | "comment" | null>(null);
  const [text, setText] = useState("");
  const undo = useUndo(again);
  const mineOf = (all: readonly Feedback[], name: string) => lastWords(all).find((each) => each.kind === "rating" && each.name === name && each.source === source)?.value ?? null;
  const mine = (name: string) => mineOf(said, name);
  const send = (body: object) => call("POST", "feedback", { body: { trajectory_id: id, source, ...body } });
  const rate = useMutation({
    scope: undo.scope,
    mutationFn: async ({ name, value }: { name: string; value: number | null }) => {
      const before = mineOf(await known(), name);
      await send({ kind: "rating", name, value });
      return before;
    },
    onSuccess: (before, { name, value }) => {
      undo.push({ says: value === null ? `Took the ${name} back` : name === "thumb" ? (value === 1 ? "Said that it is good" : "Said that it is bad") : `Rated it ${value}`, undo: () => send({ kind: "rating", name, value: before }) });
      // Another form may have been opened since.
      if (name === "score") setForm((now) => (now === "score" ? null : now));
      return again();
    },
  });
  const comment = useMutation({
    mutationFn: () => send({ kind: "comment", comment: text.trim() }),
    onSuccess: () => {
      setForm((now) => (now === "comment" ? null : now));
      return again();
    },
  });
  useKeys({ u: undo.back });
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
