/** What people said of something: whose word counts, and replies as they should have been. */

import type { Schemas } from "./api/client";

type Feedback = Schemas["Feedback"];
type Message = Schemas["Message"];

/** The last word of each source: of each name one rating and one label, of each pair one comparison, one correction. What
 * takes itself back, a label or a rating without a value, is not there; each comment is. The latest first. */
export function lastWords(said: readonly Feedback[]): Feedback[] {
  const last = new Map<string, Feedback>();
  // As it comes from the server, in the order of commits.
  for (const each of said) {
    const key = each.kind === "comment" ? each.feedback_id : [each.kind, each.name, each.source, each.trajectory_id, each.step_id, each.other_id].join(" ");
    last.delete(key ?? "");
    last.set(key ?? "", each);
  }
  return [...last.values()].filter((each) => !((each.kind === "rating" || each.kind === "label") && each.value == null)).reverse();
}

/** The text of a message as it is shown: what was thought, said and called. */
export function textOf(message: Message): string {
  const content = typeof message.content === "string" ? message.content : (message.content ?? []).map((part) => ("text" in part ? part.text : `[${part.digest}]`)).join("\n");
  const calls = (message.tool_calls ?? []).map((call) => `${call.function.name}(${call.function.arguments})`).join("\n");
  return [message.reasoning, content, calls].filter((each) => each != null && each !== "").join("\n");
}

/** What should have been said; a text stands for a whole reply. */
export const corrected = (value: unknown): string => (typeof value === "string" ? value : textOf(value as Message));

/** Whether a correction says what was sampled, which takes back what the same source said before. */
export function takesBack(value: unknown, reply: Message): boolean {
  if (typeof value === "string") return value === textOf(reply);
  return textOf(value as Message) === textOf(reply);
}
