import { expect, it } from "vitest";

import { diffOf, type Edit } from "./diff";

const said = (edits: Edit<string>[]) => edits.map((each) => `${{ same: "=", gone: "-", new: "+" }[each.kind]}${each.items.join("")}`).join(" ");
const diff = (before: string, after: string) => said(diffOf([...before], [...after]));

it("finds what is the same, gone and new", () => {
  expect(diff("abc", "abc")).toBe("=abc");
  expect(diff("", "ab")).toBe("+ab");
  expect(diff("ab", "")).toBe("-ab");
  expect(diff("", "")).toBe("");
  expect(diff("abc", "abcde")).toBe("=abc +de");
  expect(diff("abXcd", "abYcd")).toBe("=ab -X +Y =cd");
  expect(diff("abcabba", "cbabac").replace(/[^-+=]/g, "").length).toBeGreaterThan(2);
});

it("gives both sequences back, with no more edits than needed", () => {
  let seed = 3;
  const random = (below: number) => (seed = (seed * 1103515245 + 12345) % 2 ** 31) % below;
  const draw = () => Array.from({ length: random(12) }, () => "abc"[random(3)]!);
  for (let time = 0; time < 400; time++) {
    const [before, after] = [draw(), draw()];
    const edits = diffOf(before, after);
    const of = (...kinds: string[]) => edits.filter((each) => kinds.includes(each.kind)).flatMap((each) => each.items);
    expect(of("same", "gone")).toEqual(before);
    expect(of("same", "new")).toEqual(after);
    expect(of("same")).toHaveLength(longest(before, after));
  }
});

/** Length of the longest common subsequence, by the table. */
function longest(one: readonly string[], other: readonly string[]): number {
  const rows = Array.from({ length: one.length + 1 }, () => new Array<number>(other.length + 1).fill(0));
  for (let i = 1; i <= one.length; i++)
    for (let j = 1; j <= other.length; j++) rows[i]![j] = one[i - 1] === other[j - 1] ? rows[i - 1]![j - 1]! + 1 : Math.max(rows[i - 1]![j]!, rows[i]![j - 1]!);
  return rows[one.length]![other.length]!;
}

it("ends where little is the same, with all replaced", () => {
  const before = Array.from({ length: 5000 }, (_, number) => `a${number}`);
  const after = Array.from({ length: 5000 }, (_, number) => `b${number}`);
  const edits = diffOf(["x", ...before], ["x", ...after]);
  expect(edits.map((each) => [each.kind, each.items.length])).toEqual([["same", 1], ["gone", 5000], ["new", 5000]]);
});
