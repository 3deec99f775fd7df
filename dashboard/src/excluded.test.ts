import { expect, it } from "vitest";

import { reasonsOf } from "./excluded";

it("counts excluded ones by reason, those that contradict themselves as one", () => {
  const reasons = ["wrong", "quarantined: 3 ids, 4 log-probabilities", "wrong", 'said "no"', "quarantined: 1 id, 0 log-probabilities", "quarantined: x", null];
  expect(reasonsOf(reasons.map((excluded_reason) => ({ excluded_reason })))).toEqual([
    { says: "contradict themselves (quarantined)", count: 3, where: "excluded" },
    { says: "wrong", count: 2, where: 'excluded_reason == "wrong"' },
    { says: "no reason is on record", count: 1, where: "excluded" },
    { says: 'said "no"', count: 1, where: 'excluded_reason == "said \\"no\\""' },
  ]);
});
