import { expect, it } from "vitest";

import { alertsOf, type Seen } from "./alerts";

const quiet = {
  stats: { trajectories: {}, exchanges: 1000, failed_exchanges: 0, dead_letters: 0, consumers: { a: {} } },
  server: { pool: { error: null, disk_free_bytes: 5e11, disk_bytes: 1e12 }, models: [{ name: "m", ready: true, engines: [{ ready: true }] }], background: [] },
  gateway: { paused: false },
  leased: [{ consumer: "a", deadline: 2000 }],
  steps: [{ step_id: "s", trajectory_id: "t" }],
  now: 1000,
} as unknown as Seen;

const changed = (changes: object): string[] => alertsOf({ ...quiet, ...changes } as Seen).map((alert) => alert.id);

it("nothing is told where all is well, or where nothing is known", () => {
  expect(alertsOf(quiet)).toEqual([]);
  expect(changed({ server: null, gateway: null, leased: [], steps: [] })).toEqual([]);
});

it("each fault is told by itself", () => {
  const stats = (more: object) => ({ stats: { ...quiet.stats, ...more } });
  expect(changed(stats({ failed_exchanges: 3 }))).toEqual(["failed"]);
  expect(changed(stats({ dead_letters: 1 }))).toEqual(["letters"]);
  expect(changed(stats({ consumers: { a: { poisoned: 2 } } }))).toEqual(["poisoned a"]);
  expect(changed({ now: 2001 })).toEqual(["dead a"]);
  expect(changed({ gateway: { paused: true } })).toEqual(["paused"]);
  expect(changed({ steps: [{ step_id: "s", trajectory_id: "t", excluded_reason: "quarantined: counts" }, { step_id: "u", trajectory_id: "t", excluded_reason: "late" }] })).toEqual(["quarantine"]);
  expect(changed({ steps: Array.from({ length: 20 }, (_, n) => ({ step_id: `${n}`, trajectory_id: "t", fork_reason: n < 3 ? "template" : "subagent" })) })).toEqual(["forks"]);
  expect(changed({ server: { ...quiet.server, pool: { error: "full", disk_free_bytes: 1e9, disk_bytes: 1e12 } } })).toEqual(["pool", "disk"]);
  expect(changed({ server: { ...quiet.server, models: [{ name: "m", ready: false, engines: [{ ready: false, error: "away" }] }] } })).toEqual(["engine m"]);
  expect(changed({ server: { ...quiet.server, background: [{ task: "idle", error: "x" }], rewards: { resting: { judge: "down" } } } })).toEqual(["background idle", "evaluators"]);
});

it("the worst come first", () => {
  const many = alertsOf({ ...quiet, gateway: { ...quiet.gateway!, paused: true }, now: 3000 });
  expect(many.map((alert) => alert.bad)).toEqual([true, false]);
});
