/** The columns of the list of trajectories: what a row keeps, how it reads, and by what it is sorted. */

import type { Schemas } from "./api/client";
import { count, decimal } from "./format";

type Trajectory = Schemas["Trajectory"];
/** What the list keeps of a trajectory: tasks and metadata can be large. */
export type Row = Omit<Trajectory, "task" | "metadata" | "annotations">;

export const slim = ({ task: _task, metadata: _metadata, annotations: _annotations, ...row }: Trajectory): Row => row;

/** How a trajectory begins and what became of its review, which is asked for where its row is in sight. */
export type Preview = Schemas["TrajectoryPreview"];

export type Column = {
  id: string;
  name: string;
  width: number;
  text: (row: Row, preview?: Preview) => string;
  /** What a row is sorted by; absent values come last. Null where the list is not sorted by the column. */
  by: ((row: Row) => string | number | null) | null;
  says?: (row: Row) => string;
  /** The field by which the server sorts; without one only what is loaded is sorted. */
  server?: string;
};

const maybe = (value: string | null | undefined) => value ?? "-";
const number = (id: string, name: string, width: number, by: (row: Row) => number | null): Column => ({
  id,
  name,
  width,
  by,
  text: (row) => (by(row) === null ? "-" : count(by(row)!)),
});
const text = (id: string, name: string, width: number, by: (row: Row) => string | null, server?: string): Column => ({
  id,
  name,
  width,
  by,
  text: (row) => maybe(by(row)),
  ...(server === undefined ? {} : { server }),
});
/** What became of a review, in words. */
export const REVIEWS: Record<string, string> = { waiting: "to review", skipped: "skipped", accepted: "accepted", rejected: "rejected" };

export const COLUMNS: readonly Column[] = [
  text("trajectory", "Trajectory", 150, (row) => row.trajectory_id),
  { id: "prompt", name: "Prompt", width: 240, by: null, text: (_, preview) => preview?.prompt ?? (preview === undefined ? "" : "-") },
  text("status", "Status", 80, (row) => row.status ?? null, "status"),
  {
    ...text("readiness", "Readiness", 85, (row) => row.readiness ?? null, "readiness"),
    says: (row) => (row.excluded_reason == null ? (row.readiness ?? "") : `${row.readiness}: ${row.excluded_reason}`),
  },
  { id: "review", name: "Review", width: 80, by: null, text: (_, preview) => (preview === undefined ? "" : (REVIEWS[preview.review ?? ""] ?? "-")) },
  { id: "reward", name: "Reward", width: 75, by: (row) => row.reward ?? null, text: (row) => (row.reward == null ? "-" : decimal(row.reward)), says: rewardsOf, server: "reward" },
  number("steps", "Steps", 60, (row) => row.step_count ?? 0),
  number("tokens", "Tokens", 80, (row) => (row.prompt_tokens ?? 0) + (row.response_tokens ?? 0)),
  number("sampled", "Sampled", 90, (row) => row.sampled_tokens ?? 0),
  text("group", "Group", 110, (row) => row.group_id ?? null, "group_id"),
  text("agent", "Agent", 100, (row) => row.agent ?? null),
  text("channel", "Channel", 80, (row) => row.channel ?? null, "channel"),
  text("labels", "Labels", 140, labelsOf),
  text("reason", "Excluded for", 160, (row) => row.excluded_reason ?? null),
  text("user", "User", 90, (row) => row.user ?? null, "user"),
  { ...number("priority", "Priority", 75, (row) => row.priority ?? 0), server: "priority" },
  number("version", "Version", 75, (row) => row.policy?.version ?? null),
  number("duration", "Seconds", 80, (row) => (row.completed_at == null || row.created_at == null ? null : Math.round(row.completed_at - row.created_at))),
  { id: "created", name: "Created", width: 105, by: (row) => row.created_at ?? null, text: () => "" },
];
export const USUAL = ["trajectory", "prompt", "status", "readiness", "review", "reward", "steps", "tokens", "group", "created"];

function rewardsOf(row: Row): string {
  const named = Object.entries(row.rewards ?? {});
  return named.length === 0 ? "no reward" : named.map(([name, value]) => `${name} ${value}`).join(", ");
}

function labelsOf(row: Row): string | null {
  const named = Object.entries(row.labels ?? {});
  return named.length === 0 ? null : named.map(([name, value]) => `${name}: ${typeof value === "string" ? value : JSON.stringify(value)}`).join(", ");
}

/** The columns that an address asks for, in their order; the usual ones where it asks for none. */
export function chosen(asked: string | null): Column[] {
  const wanted = new Set(asked === null || asked === "" ? USUAL : asked.split(","));
  const found = COLUMNS.filter((each) => each.id === "trajectory" || wanted.has(each.id));
  return found;
}

export type Sort = { id: string; down: boolean };

/** `-reward` is from the highest on; null where the order is that of the server. */
export function sortOf(asked: string | null): Sort | null {
  if (asked === null || asked === "") return null;
  const id = asked.replace(/^-/, "");
  return COLUMNS.some((each) => each.id === id && each.by !== null) ? { id, down: asked.startsWith("-") } : null;
}

/** What the server is asked to sort by; null where it keeps no such order. */
export function serverSort(sort: Sort | null): string | null {
  const field = COLUMNS.find((each) => each.id === sort?.id)?.server;
  return field === undefined ? null : `${sort?.down ? "-" : ""}${field}`;
}

/** The rows in order of a column, those without a value last; rows that are equal stay as they were. */
export function sorted(rows: readonly Row[], sort: Sort | null): readonly Row[] {
  const by = COLUMNS.find((each) => each.id === sort?.id)?.by;
  if (sort === null || by == null) return rows;
  const way = sort.down ? -1 : 1;
  return [...rows].sort((one, other) => {
    const [first, second] = [by(one), by(other)];
    if (first === null || second === null) return Number(first === null) - Number(second === null);
    return first === second ? 0 : first < second ? -way : way;
  });
}
