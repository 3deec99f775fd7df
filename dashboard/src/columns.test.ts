import { beforeEach, expect, it, vi } from "vitest";

import { chosen, COLUMNS, serverSort, slim, sorted, sortOf, USUAL } from "./columns";
import { forgetFilter, savedFilters, saveFilter, savedWidths } from "./saved";

const row = (trajectory_id: string, more: object = {}) => slim({ trajectory_id, task: { text: "long" }, metadata: { a: 1 }, ...more } as never);

it("keeps no task and no metadata", () => {
  expect(row("a", { reward: 1 })).toEqual({ trajectory_id: "a", reward: 1 });
});

it("shows the columns that are asked for, the id always", () => {
  expect(chosen(null).map((each) => each.id)).toEqual(USUAL);
  expect(chosen("reward,status,no-such").map((each) => each.id)).toEqual(["trajectory", "status", "reward"]);
  for (const column of COLUMNS) expect(typeof column.text(row("a"))).toBe("string");
});

it("sorts by a column, absent values last both ways, equal rows as they were", () => {
  const rows = [row("a", { reward: 0.5 }), row("b"), row("c", { reward: 2 }), row("d", { reward: 0.5 })];
  const ids = (asked: string) => sorted(rows, sortOf(asked)).map((each) => each.trajectory_id).join("");
  expect(ids("reward")).toBe("adcb");
  expect(ids("-reward")).toBe("cadb");
  expect(ids("no-such")).toBe("abcd");
  expect(ids("-trajectory")).toBe("dcba");
  expect(sortOf("prompt")).toBeNull();
});

it("knows what the server sorts by, and what only this page can", () => {
  expect(["-reward", "group", "steps", "-trajectory", null].map((asked) => serverSort(sortOf(asked)))).toEqual(["-reward", "group_id", null, null, null]);
});

it("tells of a row what was asked for beside it", () => {
  const [prompt, review] = ["prompt", "review"].map((id) => COLUMNS.find((each) => each.id === id)!);
  const preview = { trajectory_id: "a", prompt: "Fix it", review: "waiting" };
  expect([prompt!.text(row("a"), preview), review!.text(row("a"), preview)]).toEqual(["Fix it", "to review"]);
  expect([prompt!.text(row("a"), { ...preview, prompt: null }), review!.text(row("a"), { ...preview, review: null })]).toEqual(["-", "-"]);
  expect([prompt!.text(row("a")), review!.text(row("a"))]).toEqual(["", ""]);
});

const kept = new Map<string, string>();
beforeEach(() => {
  kept.clear();
  vi.stubGlobal("localStorage", { getItem: (name: string) => kept.get(name) ?? null, setItem: (name: string, value: string) => kept.set(name, value) });
});

it("keeps filters under names, and never what may be a key", () => {
  expect(saveFilter({ name: "good", query: "where=reward+%3E+0" })).toHaveLength(1);
  expect(saveFilter({ name: "good", query: "where=ready" })).toEqual([{ name: "good", query: "where=ready" }]);
  expect(saveFilter({ name: "mine", query: "where=agent+%3D%3D+%27aw-k-abc%27" })).toBeNull();
  expect(savedFilters()).toHaveLength(1);
  expect(forgetFilter("good")).toEqual([]);
});

it("passes over what something else wrote", () => {
  for (const text of ["{", "3", '[{"name":1}]', "null"]) {
    kept.set("agentworld.filters", text);
    kept.set("agentworld.widths", text);
    expect(savedFilters()).toEqual([]);
    expect(savedWidths()).toEqual({});
  }
  kept.set("agentworld.widths", '{"status":120,"reward":-5,"agent":"x"}');
  expect(savedWidths()).toEqual({ status: 120 });
});
