import { expect, it } from "vitest";

import { addressOf, errorOf } from "./api/client";
import { age, bytes, counted, cut, span, visible } from "./format";

it("what cannot be seen is written out, and nothing else is touched", () => {
  expect(visible("a\u202eb\u0007c\u200bd\ud800")).toBe("a\\u202eb\\u0007c\\u200bd\\ud800");
  const plain = "Grüße, 世界 👩‍🚀\n\tx <b>&amp;</b>".replace("\u200d", "");
  expect(visible(plain)).toBe(plain);
});

it("long text is cut, and how much is left is told", () => {
  expect(cut("abcdef", 4)).toEqual({ text: "abcd", left: 2 });
  expect(cut("abcd", 4)).toEqual({ text: "abcd", left: 0 });
});

it("one is one", () => {
  expect([0, 1, 2].map((value) => counted(value, "trajectory", "trajectories"))).toEqual(["0 trajectories", "1 trajectory", "2 trajectories"]);
});

it("ages are in the largest unit that fits", () => {
  expect(age(1000 - 7200, 1000)).toMatch(/2/);
  expect(age(1000 - 7200, 1000)).toMatch(/h/);
});

it("addresses leave out what is not asked, and encode the rest", () => {
  expect(addressOf("steps", { where: "a == 'b&c'", cursor: null, limit: 5 })).toBe("/api/v1/steps?where=a+%3D%3D+%27b%26c%27&limit=5");
  expect(addressOf("stats")).toBe("/api/v1/stats");
});

it("an error is told as the server tells it, and a proxy's by its status", () => {
  const said = errorOf(422, '{"error":{"code":"invalid_query","message":"m","path":"?where","hint":"h"}}');
  expect([said.status, said.code, said.message, said.path, said.hint]).toEqual([422, "invalid_query", "m", "?where", "h"]);
  expect(errorOf(502, "<html>").message).toContain("502");
});

it("sizes and spans of time are in the unit that fits", () => {
  expect([0, 999, 1000, 1500, 9_960_000, 12_345_678_901, 4e15].map(bytes)).toEqual(["0 B", "999 B", "1 kB", "1.5 kB", "10 MB", "12 GB", "4000 TB"]);
  expect([0.04, 3.14, 59, 61, 3700, 90_000].map(span)).toEqual(["0 s", "3.1 s", "59 s", "1 min 1 s", "1 h 2 min", "1 d 1 h"]);
});
