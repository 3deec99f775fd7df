import { useState } from "react";
import { Link } from "wouter";

import type { Schemas } from "../api/client";
import { count } from "../format";
import { Corrections } from "./corrections";
import { MessageView } from "./message";

type Message = Schemas["Message"];
type Step = Schemas["Step"];
const LAST = 30;
const MORE = 100;

/** The prompt's last messages, the earlier ones on demand, and the reply; a call of a tool stands beside its result. */
export function Messages({ step }: { step: Step }) {
  const [most, setMost] = useState(LAST);
  const prompt = step.prompt_messages ?? [];
  if (prompt.length === 0 && step.response_message == null) return <p className="quiet">This step has no messages: it was submitted as ids alone.</p>;
  const from = Math.max(0, prompt.length - most);
  const shown = prompt.slice(from);
  const paired = pairs(prompt);
  return (
    <>
      {(step.tools ?? []).length > 0 && <Tools tools={step.tools!} />}
      {from > 0 && (
        <button type="button" onClick={() => setMost(most + MORE)}>
          {count(from)} earlier messages: show {count(Math.min(from, MORE))}
        </button>
      )}
      {shown.map((each, number) =>
        paired.taken.has(from + number) ? null : <MessageView key={from + number} message={each} results={paired.results.get(from + number)} />,
      )}
      <h2>Reply</h2>
      {step.response_message != null ? <MessageView message={step.response_message} /> : <p className="quiet">It is not kept as a message.</p>}
      <Corrections step={step} />
      <p>
        <Link href={`/trajectories/${encodeURIComponent(step.trajectory_id)}?step=${encodeURIComponent(step.step_id)}&tab=facts#feedback`}>Rate or correct</Link>
      </p>
    </>
  );
}

type Paired = { taken: Set<number>; results: Map<number, Map<string, Message>> };

/** Results by the place of the message that called; ids repeat over turns, so a result is that of the latest call. */
export function pairs(messages: readonly Message[]): Paired {
  const callers = new Map<string, number>();
  const found: Paired = { taken: new Set(), results: new Map() };
  messages.forEach((message, place) => {
    for (const call of message.tool_calls ?? []) callers.set(call.id, place);
    if (message.role !== "tool" || message.tool_call_id == null) return;
    const caller = callers.get(message.tool_call_id);
    if (caller === undefined) return;
    callers.delete(message.tool_call_id);
    found.taken.add(place);
    if (!found.results.has(caller)) found.results.set(caller, new Map());
    found.results.get(caller)!.set(message.tool_call_id, message);
  });
  return found;
}

function Tools({ tools }: { tools: NonNullable<Step["tools"]> }) {
  return (
    <details className="tools">
      <summary>{count(tools.length)} tools</summary>
      {tools.map((tool, number) => (
        <MessageView key={number} message={{ role: "tool", content: JSON.stringify(tool), tool_calls: [] }} />
      ))}
    </details>
  );
}
