// @vitest-environment jsdom

import { act, render } from "@testing-library/react";
import { expect, it, vi } from "vitest";

import { age } from "../format";
import { When } from "./when";

it("a moment grows old while it is looked at", () => {
  vi.useFakeTimers();
  const at = Date.now() / 1000;
  const { container, unmount } = render(<When at={at} />);
  expect(container.textContent).toBe(age(0, 0));
  act(() => void vi.advanceTimersByTime(60_000));
  expect(container.textContent).toBe(age(0, 60));
  unmount();
  expect(vi.getTimerCount()).toBe(0);
  vi.useRealTimers();
});

it("a moment that is no date takes no page down", () => {
  expect(render(<When at={1e300} />).container.textContent).toBe("no date (1e+300 s)");
});
