import { expect, test } from "vitest";

import type { PoolEvent } from "./api/live";
import { joined, kindOf, saidBy } from "./feed";

const event = (sequence: number, kind = "step.appended", data = {}): PoolEvent => ({ sequence, kind, at: 1, trajectory_id: "t", step_id: null, data });

test("events come once, the newest first, and no more than are wanted", () => {
  const feed = joined([event(3), event(2)], [event(3), event(5), event(4)], 3);
  expect(feed.map(({ sequence }) => sequence)).toEqual([5, 4, 3]);
});

test("an event is of a kind, and says what it has to say", () => {
  expect(kindOf(event(1, "exchange.failed"))).toBe("calls");
  expect(kindOf(event(1, "gateway.paused"))).toBe("other");
  expect(saidBy(event(1, "reward.set", { name: "reward", value: 0.5, source: null, exchange_id: "e" }))).toBe("name reward, value 0.5");
});
