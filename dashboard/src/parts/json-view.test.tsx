// @vitest-environment jsdom

import { cleanup, fireEvent, render } from "@testing-library/react";
import { afterEach, expect, it } from "vitest";

import { JsonView, parsed } from "./json-view";

afterEach(cleanup);

it("takes objects and lists for JSON, and nothing else", () => {
  expect(parsed(' {"a": [1]}')).toEqual({ a: [1] });
  for (const text of ["", "3", '"a"', "{", "[1,]", "text {}", "null"]) expect(parsed(text)).toBeUndefined();
});

it("makes nested values only as they are opened", () => {
  const deep = `${'{"a":'.repeat(5000)}1${"}".repeat(5000)}`;
  const { container } = render(<JsonView value={parsed(deep)} />);
  const before = container.querySelectorAll("details").length;
  expect(before).toBeLessThan(5);
  const last = [...container.querySelectorAll("details")].pop()!;
  last.open = true;
  fireEvent(last, new Event("toggle"));
  expect(container.querySelectorAll("details").length).toBe(before + 1);
});

it("shows long texts and lists in part, and what cannot be seen written out", () => {
  const { container, getAllByRole } = render(<JsonView value={{ list: null, text: `\u202e<b>${"x".repeat(5000)}`, ...Object.fromEntries(Array.from({ length: 300 }, (_, n) => [`k${n}`, n])) }} />);
  expect(container.textContent).toContain("\\u202e<b>");
  expect(container.querySelector("b")).toBeNull();
  expect(container.textContent!.length).toBeLessThan(6000);
  const [text, list] = getAllByRole("button");
  expect(text!.textContent).toContain("more characters");
  fireEvent.click(list!);
  expect(container.textContent).toContain("k299");
});
