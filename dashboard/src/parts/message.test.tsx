// @vitest-environment jsdom

import { render } from "@testing-library/react";
import { expect, it } from "vitest";

import { MessageView } from "./message";

const HOSTILE = [
  "<script>window.hit = 1</script>",
  "<img src=x onerror='window.hit = 1'>",
  "[a](javascript:window.hit=1) ![b](http://elsewhere.test/x.png) <http://elsewhere.test>",
  "<svg onload=window.hit=1>\n\n<iframe src='http://elsewhere.test'></iframe>",
];

it("stored text is never markup", () => {
  for (const content of HOSTILE) {
    for (const role of ["user", "assistant", "tool"] as const) {
      const { container, unmount } = render(<MessageView message={{ role, content, tool_calls: [] }} />);
      expect(container.querySelector("script, img, iframe, svg, a, [onerror], [onload], [href], [src]")).toBeNull();
      unmount();
    }
  }
  expect("hit" in window).toBe(false);
});

it("a call stands beside its result", () => {
  const call = { id: "c1", type: "function" as const, function: { name: "read", arguments: '{"path":"x"}' } };
  const result = { role: "tool" as const, content: "the <b>file</b>", tool_call_id: "c1", tool_calls: [] };
  const { container } = render(
    <MessageView message={{ role: "assistant", content: null, tool_calls: [call] }} results={new Map([["c1", result]])} />,
  );
  const said = container.querySelector(".call")!.textContent!;
  expect(said).toContain("read");
  expect(said).toContain("the <b>file</b>");
});
