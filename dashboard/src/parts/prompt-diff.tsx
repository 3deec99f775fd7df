import { useQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";

import { get, type Schemas } from "../api/client";
import { diffOf, type Edit } from "../diff";
import { count, cut, visible } from "../format";
import { MessageView } from "./message";
import { Problem } from "./problem";
import "./prompt-diff.css";

type Message = Schemas["Message"];
type Step = Schemas["Step"];
const MOST_LINES = 4_000;
const MOST_TEXT = 400_000;

export const FORKS: Record<string, string> = {
  subagent: "The conversation has an opening that the trajectory had not had: another agent speaks.",
  compaction: "The history was rewritten and made shorter.",
  history_rewritten: "What was said before is not what stands in this prompt, or another step had gone on from there.",
  template: "The messages go on, but their ids do not: the template renders history otherwise.",
  tools_changed: "The conversation goes on with other tools.",
  retry: "The client sent the same call again; this step takes the place of the first.",
  parallel: "The same prompt was answered before, or this is a further choice of one call.",
};

/** What this prompt has that the step before and its reply had not, and the other way round. */
export function PromptDiff({ step, before }: { step: Step; before: string | null }) {
  const other = useQuery({
    queryKey: ["step", before, "messages"],
    enabled: before !== null,
    queryFn: ({ signal }) => get<Step>(`steps/${encodeURIComponent(before!)}`, { include: "messages" }, signal),
  });
  const edits = useMemo(() => (other.data === undefined ? null : messageEdits(other.data, step)), [other.data, step]);
  if (before === null) return <p className="quiet">This step is the first: there is no prompt before it.</p>;
  if (other.isError) return <Problem error={other.error} again={() => void other.refetch()} />;
  if (edits === null) return <p className="quiet">Loading</p>;
  return (
    <>
      <p className="quiet">
        Beside step {other.data?.step_index ?? before} and its reply
        {step.parent_step_id == null && ", the one before in time, as this step goes on from none"}.{" "}
        {step.fork_reason != null && `${step.fork_reason}: ${FORKS[step.fork_reason] ?? ""}`}
      </p>
      {edits.every((each) => each.kind === "same") && <p>Nothing differs.</p>}
      {edits.map((edit, number) => (
        <Edited key={number} edit={edit} next={edits[number + 1]} last={edits[number - 1]} />
      ))}
    </>
  );
}

const keyOf = (message: Message): string => JSON.stringify([message.role, message.content ?? "", message.reasoning ?? null, message.tool_calls ?? [], message.tool_call_id ?? null, message.name ?? null]);

/** Edits from the earlier step's prompt and reply to this one's prompt. */
export function messageEdits(before: Step, step: Step): Edit<Message>[] {
  const earlier = [...(before.prompt_messages ?? []), ...(before.response_message == null ? [] : [before.response_message])];
  const keys = new Map<Message, string>();
  const key = (message: Message) => {
    const known = keys.get(message) ?? keyOf(message);
    keys.set(message, known);
    return known;
  };
  return diffOf(earlier, step.prompt_messages ?? [], (one, two) => key(one) === key(two));
}

function Edited({ edit, next, last }: { edit: Edit<Message>; next: Edit<Message> | undefined; last: Edit<Message> | undefined }) {
  const [open, setOpen] = useState(false);
  if (edit.kind === "same") {
    return (
      <details className="diff-same" onToggle={(event) => setOpen(event.currentTarget.open)}>
        <summary>{count(edit.items.length)} messages are the same</summary>
        {open && edit.items.slice(0, 100).map((each, number) => <MessageView key={number} message={each} />)}
        {open && edit.items.length > 100 && <p className="quiet">and {count(edit.items.length - 100)} more</p>}
      </details>
    );
  }
  // One message that became another is shown by its lines.
  if (edit.kind === "gone" && pairOf(edit, next) !== null) return <Lines {...pairOf(edit, next)!} />;
  if (edit.kind === "new" && pairOf(last, edit) !== null) return null;
  return (
    <section className={`diff-${edit.kind}`} aria-label={edit.kind === "gone" ? "No longer there" : "New here"}>
      <h2>{edit.kind === "gone" ? `${count(edit.items.length)} no longer there` : `${count(edit.items.length)} new`}</h2>
      {edit.items.slice(0, 100).map((each, number) => (
        <MessageView key={number} message={each} />
      ))}
    </section>
  );
}

function pairOf(gone: Edit<Message> | undefined, added: Edit<Message> | undefined): { before: Message; after: Message } | null {
  if (gone?.kind !== "gone" || added?.kind !== "new" || gone.items.length !== 1 || added.items.length !== 1) return null;
  const [before, after] = [gone.items[0]!, added.items[0]!];
  return before.role === after.role ? { before, after } : null;
}

const textOf = (message: Message): string => {
  const content = typeof message.content === "string" ? message.content : (message.content ?? []).map((part) => ("text" in part ? part.text : `[${part.digest}]`)).join("\n");
  const calls = (message.tool_calls ?? []).map((call) => `${call.function.name}(${call.function.arguments}) ${call.id}`).join("\n");
  return [message.reasoning, content, calls].filter((each) => each != null && each !== "").join("\n");
};

function Lines({ before, after }: { before: Message; after: Message }) {
  const [first, second] = [cut(textOf(before), MOST_TEXT), cut(textOf(after), MOST_TEXT)];
  const edits = diffOf(first.text.split("\n").slice(0, MOST_LINES), second.text.split("\n").slice(0, MOST_LINES));
  return (
    <section className="diff-lines" aria-label="Changed message">
      <h2>{after.role}: changed</h2>
      <pre tabIndex={0}>
        {edits.map((edit, number) => {
          const lines = edit.kind === "same" && edit.items.length > 8 ? [...edit.items.slice(0, 3), `… ${count(edit.items.length - 6)} lines …`, ...edit.items.slice(-3)] : edit.items;
          const mark = { same: "  ", gone: "- ", new: "+ " }[edit.kind];
          return (
            <span key={number} className={`line-${edit.kind}`}>
              {lines.map((line) => `${mark}${visible(cut(line, 2_000).text)}\n`).join("")}
            </span>
          );
        })}
      </pre>
      {first.left + second.left > 0 && <p className="quiet">The rest is too long to compare.</p>}
    </section>
  );
}
