/** What merging saves, along batches and budgets, and which forks cost most. */

import type { Schemas } from "./api/client";

type Node = Schemas["MergeNode"];
export type Fork = { node: Node; tokens: number };

/** Where branches part with a reason: how many unique tokens are below each, which none of the others shares. The
 * dearest first. `rollout` is no fault: other rollouts of a task say other things.
 */
export function worstForks(nodes: readonly Node[], most: number): Fork[] {
  const below = new Map<number, number>();
  for (const node of [...nodes].reverse()) {
    const own = node.length + (node.hidden_tokens ?? 0) + (below.get(node.id) ?? 0);
    below.set(node.id, own);
    if (node.parent >= 0) below.set(node.parent, (below.get(node.parent) ?? 0) + own);
  }
  return nodes
    .filter((node) => node.reason != null && node.reason !== "rollout")
    .map((node) => ({ node, tokens: below.get(node.id)! }))
    .sort((a, b) => b.tokens - a.tokens)
    .slice(0, most);
}

/** Budgets to try beside the one that was asked for: halves and doubles of it, none that holds less than the longest. */
export function budgetsAround(budget: number, depth: number): number[] {
  return [budget / 4, budget / 2, budget, budget * 2, budget * 4].map(Math.round).filter((each) => each >= depth);
}
