/** What a method needs of the data, and what keeps it from a batch, in words. */

import type { Schemas } from "./api/client";

type Method = Pick<Schemas["MethodNeeds"], "name" | "unit" | "needs" | "rewarded" | "rollouts" | "takes_text">;
type Report = Pick<Schemas["SpecReport"], "satisfied" | "fitting" | "looked_at" | "unit" | "findings">;

/** What is handed out as one, in words. */
export const unitOf = (method: Method): string => (method.rollouts > 1 ? `${method.unit} of ${method.rollouts} or more` : method.unit);

/** What each unit must have; that no reward is needed is told too, as it is what others wait for. */
export function needsOf(method: Method): string {
  const needs = method.needs.map((need) => wordOf(need, method.takes_text));
  if (method.unit === "pair") needs.push("one that is better than the other");
  else if (method.rewarded) needs.push("a reward");
  else if (!method.needs.includes("step_reward")) needs.push("no reward");
  return needs.join(", ");
}

function wordOf(need: string, takesText: boolean): string {
  if (need === "tokens") return takesText ? "ids, or messages where the spec requires those" : "ids";
  if (need === "logprobs") return "log-probabilities";
  if (need === "step_reward") return "rewards of steps";
  const [kind, ...name] = need.split(".");
  return name.length === 0 ? need : `the ${kind} ${name.join(".")}`;
}

/** Whether it could be handed one unit: words apart from those of readiness, which are about one trajectory. */
export function standOf(report: Report): { says: string; good: boolean } {
  if (report.satisfied) return { says: "can be served", good: true };
  return { says: report.satisfied === false ? "cannot be served yet" : "cannot be told from what was looked at", good: false };
}

/** What is missing, the commonest first, with what to do; "" where nothing is. */
export function missingOf(report: Report): string {
  const first = report.findings[0];
  return first === undefined ? "" : `${first.message}. ${first.hint}.`;
}
