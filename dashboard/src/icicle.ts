/** Where the nodes of a token tree lie: along the tokens from left to right, as high as the sequences that go through. */

import type { Schemas } from "./api/client";

export type Node = Schemas["MergeNode"];
export type Box = { node: Node; left: number; width: number; top: number; height: number };

/** Boxes in shares of the whole (0 to 1), of what is below `root` (null: all of it). Nodes come in preorder. */
export function boxesOf(nodes: readonly Node[], root: number | null): Box[] {
  const inside = root === null ? [...nodes] : below(nodes, root);
  const first = inside[0];
  if (first === undefined) return [];
  const begin = Math.min(...inside.map((node) => node.start));
  const end = Math.max(...inside.map((node) => node.start + node.length));
  const present = new Set(inside.map((node) => node.id));
  const roots = inside.filter((node) => !present.has(node.parent));
  const all = roots.reduce((sum, node) => sum + node.sequences, 0);
  const span = Math.max(1, end - begin);
  // Children lie one under the other within their parent; what ends in it leaves room below them.
  const free = new Map<number, number>();
  let top = 0;
  return inside.map((node) => {
    const height = node.sequences / Math.max(1, all);
    const parent = present.has(node.parent) ? node.parent : null;
    const at = parent === null ? top : free.get(parent)!;
    if (parent === null) top += height;
    else free.set(parent, at + height);
    free.set(node.id, at);
    return { node, left: (node.start - begin) / span, width: node.length / span, top: at, height };
  });
}

/** A node and all below it. */
function below(nodes: readonly Node[], root: number): Node[] {
  const kept = new Set([root]);
  return nodes.filter((node) => {
    if (node.id !== root && !kept.has(node.parent)) return false;
    kept.add(node.id);
    return true;
  });
}
