import { expect, test } from "vitest";

import { ApiError } from "./api/client";
import { faultOf, rulesOf, verdictOf } from "./rules";

const TEXT = "when open then exclude 'a'\n\n  when rewrad > 1 then review 'x'\n";

test("rules are lines, and a fault is found where it stands", () => {
  expect(rulesOf(TEXT).map(({ line, from }) => [line, from])).toEqual([[1, 0], [3, 30]]);
  const fault = faultOf(new ApiError(400, "invalid_query", "rule 2: trajectories have no field 'rewrad', at position 5", "rules[1]", "Did you mean reward?"), TEXT)!;
  expect([fault.line, fault.message, fault.hint, fault.before, fault.at]).toEqual([3, "trajectories have no field 'rewrad'", "Did you mean reward?", "when ", "rewrad"]);
  expect(TEXT.slice(fault.from, fault.to)).toBe("rewrad");
});

test("a fault at the end, and one behind characters of two units, are in their place", () => {
  const end = faultOf(new ApiError(400, "invalid_query", "rule 1: a value must stand there, not the end, at position 6", "rules[0]"), "when a")!;
  expect([end.before, end.at, end.after]).toEqual(["when a", " ", ""]);
  const text = "when agent == '👩' nad open then exclude 'x'";
  const fault = faultOf(new ApiError(400, "invalid_query", "rule 1: no, at position 18", "rules[0]"), text)!;
  expect(text.slice(fault.from, fault.to)).toBe("nad");
  expect(faultOf(new ApiError(403, "forbidden", "no"), text)).toBe(null);
  expect(faultOf(new ApiError(400, "invalid_request", "no", "$.default"), text)).toBe(null);
});

test("what a rule does is read beside its texts", () => {
  const rules = ["when open then exclude 'x'", "when agent == 'a\\' then exclude' then review \"then ready\"", "steps when truncated then  ready", "when reward > 1 then tag good"];
  expect(rules.map(verdictOf)).toEqual(["exclude", "review", "ready", "mark"]);
});
