import { expect, it } from "vitest";

import { corrected, lastWords, takesBack } from "./said";

const said = (kind: string, source: string, value: unknown, more: object = {}) => ({ feedback_id: `${kind}${source}${String(value)}`, kind, source, value, trajectory_id: "t", created_at: 1, ...more }) as never;

it("has the last word of each source, and what was not taken back", () => {
  const found = lastWords([
    said("rating", "ann", 1, { name: "thumb" }),
    said("rating", "ann", 4, { name: "score" }),
    said("rating", "bob", 1, { name: "thumb" }),
    said("rating", "bob", null, { name: "thumb" }),
    said("comment", "ann", null, { comment: "a", feedback_id: "1" }),
    said("comment", "ann", null, { comment: "b", feedback_id: "2" }),
    said("rating", "ann", 0, { name: "thumb" }),
  ]);
  expect(found.map((each) => `${each.kind} ${each.source} ${each.value ?? each.comment}`)).toEqual(["rating ann 0", "comment ann b", "comment ann a", "rating ann 4"]);
});

it("reads corrections as texts and as messages", () => {
  const reply = { role: "assistant", content: "5", tool_calls: [] } as never;
  expect([corrected("4"), corrected({ role: "assistant", content: [{ text: "4" }] })]).toEqual(["4", "4"]);
  expect([takesBack("5", reply), takesBack(reply, reply), takesBack("4", reply)]).toEqual([true, true, false]);
});
