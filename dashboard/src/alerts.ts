/** What is not as it should be, each with what to do, from what the server tells of itself and of the pool. */

import type { Schemas } from "./api/client";
import { bytes, count, counted, decimal, span } from "./format";

export type Alert = { id: string; bad: boolean; says: string; todo: string; path: string | null };
export type Seen = {
  stats: Schemas["PoolStats"];
  server: Schemas["ServerStatus"] | null;
  gateway: Schemas["GatewayStatus"] | null;
  leased: readonly Schemas["BatchRecord"][];
  steps: readonly Schemas["Step"][];
  now: number;
};

const LEAST_FREE = 5e9;
const LEAST_SHARE = 0.05;
const MANY_FORKS = 0.1;
const MANY_FAILURES = 0.02;
// Of the reasons for which a step does not plainly go on, those that cost ids that were kept before.
const COSTLY = ["template", "history_rewritten", "tools_changed"];

/** The worst first. */
export function alertsOf(seen: Seen): Alert[] {
  const found = [...poolAlerts(seen), ...engineAlerts(seen), ...captureAlerts(seen), ...consumerAlerts(seen)];
  return found.sort((a, b) => Number(b.bad) - Number(a.bad));
}

function poolAlerts({ server, gateway }: Seen): Alert[] {
  const found: Alert[] = [];
  if (server?.pool.error != null) {
    found.push({ id: "pool", bad: true, says: `The pool takes no writes: ${server.pool.error}`, todo: "Calls fail until it does. See whether its disk is full or read-only, and who holds its lock.", path: "/settings" });
  }
  const { disk_free_bytes: free, disk_bytes: all } = server?.pool ?? {};
  if (free != null && all != null && (free < LEAST_FREE || free < LEAST_SHARE * all)) {
    found.push({ id: "disk", bad: free < LEAST_FREE / 5, says: `${bytes(free)} are free on the disk of the pool`, todo: "Let go of what is not needed any more: Settings, Retention tries it first.", path: "/settings?tab=retention" });
  }
  if (gateway?.paused) {
    found.push({ id: "paused", bad: false, says: "The gateways are paused, so calls wait", todo: "A trainer pauses them while weights change. Where none does, POST /api/v1/gateway/resume.", path: "/collection?tab=engines" });
  }
  for (const each of server?.background ?? []) {
    found.push({ id: `background ${String(each.task)}`, bad: true, says: `${String(each.task)} failed: ${String(each.error)}`, todo: "It is begun again by itself; the server's log has the details.", path: null });
  }
  const resting = Object.keys((server?.rewards as { resting?: Record<string, string> } | null | undefined)?.resting ?? {});
  if (resting.length > 0) {
    found.push({ id: "evaluators", bad: true, says: `Evaluators rest after many failures: ${resting.join(", ")}`, todo: "Settings says why. What they were to judge waits for a reward.", path: "/settings" });
  }
  return found;
}

function engineAlerts({ server }: Seen): Alert[] {
  return (server?.models ?? []).flatMap((model) => {
    const away = (model.engines ?? []).filter((engine) => !engine.ready);
    if (away.length === 0) return [];
    const says = model.ready ? `${count(away.length)} of ${count(model.engines!.length)} engines of ${model.name} are not well` : `No engine of ${model.name} is well`;
    return [{ id: `engine ${model.name}`, bad: !model.ready, says: `${says}: ${away[0]!.error ?? "not ready"}`, todo: "`agentworld doctor` says what to fix.", path: "/collection?tab=engines" }];
  });
}

function captureAlerts({ stats, steps }: Seen): Alert[] {
  const found: Alert[] = [];
  const failed = stats.failed_exchanges ?? 0;
  if (failed > 0) {
    const many = failed > MANY_FAILURES * stats.exchanges;
    found.push({ id: "failed", bad: many, says: `${count(failed)} of ${count(stats.exchanges)} calls got no reply`, todo: "See which, and what the engines said.", path: "/collection?tab=errors" });
  }
  if ((stats.dead_letters ?? 0) > 0) {
    found.push({ id: "letters", bad: true, says: `${counted(stats.dead_letters!, "record", "records")} could not be stored`, todo: "Each says why; whoever sends them has to be corrected.", path: "/collection?tab=errors" });
  }
  const doubted = steps.filter((step) => step.excluded_reason?.startsWith("quarantined:"));
  if (doubted.length > 0) {
    found.push({ id: "quarantine", bad: true, says: `${count(doubted.length)} of the newest ${count(steps.length)} steps contradict themselves: ${doubted[0]!.excluded_reason}`, todo: "They are not served. An engine that reports other ids than it was sent, or counts that disagree, has to be corrected; `agentworld doctor` tries it.", path: `/trajectories/${encodeURIComponent(doubted[0]!.trajectory_id)}?step=${encodeURIComponent(doubted[0]!.step_id)}` });
  }
  const forked = steps.filter((step) => COSTLY.includes(step.fork_reason ?? ""));
  if (steps.length > 0 && forked.length / steps.length > MANY_FORKS) {
    const reasons = [...new Set(forked.map((step) => step.fork_reason))].join(", ");
    found.push({ id: "forks", bad: false, says: `${decimal(Math.round((forked.length / steps.length) * 100))}% of the newest ${count(steps.length)} steps do not go on from the step before: ${reasons}`, todo: "Each costs a prompt that is computed and trained anew. Optimization shows where; token-in mode keeps ids bit for bit.", path: `/trajectories/${encodeURIComponent(forked[0]!.trajectory_id)}?step=${encodeURIComponent(forked[0]!.step_id)}` });
  }
  return found;
}

function consumerAlerts({ stats, leased, now }: Seen): Alert[] {
  const found: Alert[] = [];
  const overdue = new Map<string, number>();
  for (const batch of leased) {
    if (batch.deadline < now) overdue.set(batch.consumer, Math.max(overdue.get(batch.consumer) ?? 0, now - batch.deadline));
  }
  for (const [consumer, since] of overdue) {
    found.push({ id: `dead ${consumer}`, bad: true, says: `${consumer} has let the time of a batch run out, ${span(since)} ago: it seems dead`, todo: "Its units go back with the next lease that is asked for. Start the trainer again: it goes on from its checkpoint.", path: `/consumption?consumer=${encodeURIComponent(consumer)}&state=leased` });
  }
  for (const [consumer, figures] of Object.entries(stats.consumers ?? {})) {
    if ((figures.poisoned ?? 0) === 0) continue;
    found.push({ id: `poisoned ${consumer}`, bad: true, says: `${counted(figures.poisoned!, "unit", "units")} of ${consumer} ${figures.poisoned === 1 ? "was" : "were"} handed out time and again and never acknowledged`, todo: "Look at what they have in common, then hand them out anew.", path: `/consumption?consumer=${encodeURIComponent(consumer)}` });
  }
  return found;
}
