import { useState, type KeyboardEvent, type ReactNode } from "react";

import { count, visible } from "../format";
import { boxesOf, type Box, type Node } from "../icicle";

const LEAST = 0.002;

type Props = { nodes: readonly Node[]; inside: (node: Node) => ReactNode };

/** A token tree to zoom into: click or Enter on a node, Escape for the way back. `inside` shows what is in that node. */
export function Icicle({ nodes, inside }: Props) {
  const [root, setRoot] = useState<number | null>(null);
  const [at, setAt] = useState<number | null>(null);
  const boxes = boxesOf(nodes, root).filter((box) => box.width >= LEAST || box.height >= LEAST);
  const byId = new Map(nodes.map((node) => [node.id, node]));
  const current = at === null ? null : (byId.get(at) ?? null);
  const press = (event: KeyboardEvent) => {
    if (event.key !== "Escape" || root === null) return;
    const parent = byId.get(root)!.parent;
    setRoot(parent < 0 ? null : parent);
  };
  return (
    <div onKeyDown={press}>
      <div className="bar">
        <button type="button" disabled={root === null} onClick={() => setRoot(null)}>
          Whole tree
        </button>
        <span className="quiet" aria-live="polite">
          {current === null ? "Along: tokens. High: sequences. Click a node to zoom in, down to its tokens." : told(current)}
        </span>
      </div>
      <div className="icicle" role="group" aria-label="Token tree">
        {boxes.map((box) => (
          <Cell key={box.node.id} box={box} zoom={() => setRoot(box.node.id)} look={() => setAt(box.node.id)} />
        ))}
      </div>
      {root !== null && byId.has(root) && inside(byId.get(root)!)}
    </div>
  );
}

function Cell({ box, zoom, look }: { box: Box; zoom: () => void; look: () => void }) {
  const { node } = box;
  const place = { left: share(box.left), width: share(box.width), top: share(box.top), height: share(box.height) };
  return (
    <button
      type="button"
      className={`node shared${Math.min(4, Math.floor(Math.log2(Math.max(1, node.sequences))))}${node.reason != null ? " forked" : ""}`}
      style={place}
      title={told(node)}
      onClick={zoom}
      onFocus={look}
      onMouseEnter={look}
    >
      {box.width > 0.05 && box.height > 0.03 ? count(node.length) : ""}
    </button>
  );
}

const share = (part: number): string => `${(part * 100).toFixed(4)}%`;

function told(node: Node): string {
  const parts = [
    `${count(node.length)} tokens from ${count(node.start)}`,
    `${count(node.sequences)} sequence${node.sequences === 1 ? "" : "s"}`,
    node.reason == null ? null : `branched off: ${node.reason}`,
    node.unit == null ? null : node.unit,
    (node.hidden ?? 0) > 0 ? `${count(node.hidden ?? 0)} smaller nodes behind it are left out` : null,
  ];
  return visible(parts.filter((part) => part !== null).join(", "));
}
