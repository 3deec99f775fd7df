import { useMutation } from "@tanstack/react-query";
import { useState } from "react";

import { call, type Schemas } from "../api/client";
import { Problem } from "./problem";
import type { Undo } from "./use-undo";

type Message = Schemas["Message"];

/** What should have been said: an edited reply is a target of training, and preferred to what was sampled. */
export function ReplyEditor({ step, by, undo }: { step: Schemas["Step"]; by: string; undo: Undo }) {
  const reply = step.response_message!;
  const [text, setText] = useState<string | null>(null);
  const save = useMutation({
    scope: undo.scope,
    mutationFn: (value: Message | string) => call("POST", "feedback", { body: correction(step, value, by) }),
    onSuccess: () => {
      // The reply as it was sampled, said as a correction, takes back what was said before.
      undo.push({ says: "Corrected the reply", undo: () => call("POST", "feedback", { body: correction(step, reply, by) }) });
      setText(null);
    },
  });
  const before = textOf(reply);
  if (text === null) {
    return (
      <div className="bar">
        <button type="button" onClick={() => setText(before)}>
          Edit the reply
        </button>
        {save.isSuccess && <span className="quiet">Saved as a correction. The step itself stays as it was sampled.</span>}
      </div>
    );
  }
  const calls = reply.tool_calls ?? [];
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        // A text stands for a whole reply without calls; with calls it is a message that has them still.
        save.mutate(calls.length === 0 ? text : { role: "assistant", content: text, tool_calls: calls });
      }}
    >
      <label htmlFor="reply">What should have been said{calls.length > 0 ? "; its tool calls stay" : ""}</label>
      <textarea id="reply" rows={Math.min(20, 3 + text.split("\n").length)} autoFocus value={text} onChange={(event) => setText(event.target.value)} />
      {save.isError && <Problem error={save.error} />}
      <div className="bar">
        <button disabled={text === before || text.trim() === "" || save.isPending}>Save the correction</button>
        <button type="button" onClick={() => setText(null)}>
          Leave it
        </button>
      </div>
    </form>
  );
}

const correction = (step: Schemas["Step"], value: Message | string, source: string) => ({ kind: "correction", step_id: step.step_id, value, source });

function textOf(message: Message): string {
  if (typeof message.content === "string") return message.content;
  return (message.content ?? []).map((part) => ("text" in part ? part.text : "")).join("");
}
