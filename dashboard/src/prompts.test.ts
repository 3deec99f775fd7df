import { expect, it } from "vitest";

import { distinct } from "./prompts";

it("leaves out what prompts beside each other begin with, but for a word", () => {
  const long = "Your task is to convert a number: ";
  const found = distinct([`${long}seven`, `${long}several`, "Fix it", `${long}seven`, "Fix that"]);
  expect([...found].sort()).toEqual([
    ["Fix it", "Fix it"],
    ["Fix that", "Fix that"],
    [`${long}seven`, "… number: seven"],
    [`${long}several`, "… number: several"],
  ]);
});

it("keeps a text that is all there is, or that another one goes on from", () => {
  const text = "Say how many there are all in all of these";
  expect(distinct([text, text]).get(text)).toBe(text);
  expect(distinct([text, `${text} and those`]).get(text)).toBe("… of these");
  expect(distinct([]).size).toBe(0);
});
