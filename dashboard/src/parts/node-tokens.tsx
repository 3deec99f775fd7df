import { useQuery } from "@tanstack/react-query";
import { useState } from "react";

import { get, type Schemas } from "../api/client";
import { count, visible } from "../format";
import type { Node } from "../icicle";
import { usePieces } from "../pieces";
import { Problem } from "./problem";
import { StepLink } from "./step-link";

const MOST = 512;
export const NODES = 1000;

/** The tokens of a node of the tree, and the steps that end with it. They are asked for once a node is looked into. */
export function NodeTokens({ query, node }: { query: Record<string, string>; node: Node }) {
  const [asText, setAsText] = useState(true);
  const tree = useQuery({
    queryKey: ["merge", "tokens", query],
    staleTime: Infinity,
    queryFn: ({ signal }) => get<Schemas["MergeTree"]>("merge/tree", { ...query, max_nodes: NODES, ids: MOST }, signal),
  });
  // Of the same tree; what was collected meanwhile may have made another one of it.
  const found = tree.data?.nodes.find((each) => each.id === node.id && each.start === node.start && each.length === node.length);
  const ids = found?.token_ids ?? [];
  const pieces = usePieces(asText ? (found?.vocabulary ?? null) : null, asText ? ids : []);
  if (tree.isError) return <Problem error={tree.error} again={() => void tree.refetch()} />;
  if (tree.isPending) return <p className="quiet">Reading its tokens</p>;
  return (
    <section aria-label="Tokens of the node">
      <div className="bar">
        <strong>
          Tokens {count(node.start)} to {count(node.start + node.length - 1)}
        </strong>
        <label className="inline">
          <input type="checkbox" checked={asText} onChange={(event) => setAsText(event.target.checked)} /> as text
        </label>
        {ids.length < node.length && ids.length > 0 && <span className="quiet">the first {count(ids.length)} of {count(node.length)}</span>}
        {asText && ids.length > 0 && pieces.missing && <span className="quiet">This server has no tokenizer of the vocabulary, so ids are shown.</span>}
      </div>
      {found === undefined ? (
        <p className="quiet">The tree has changed since it was drawn: load the page again.</p>
      ) : (
        <p className="node-tokens" tabIndex={0} role="group" aria-label={`${count(ids.length)} tokens`}>
          {ids.map((id, place) => {
            const text = asText ? pieces.text(id) : null;
            return (
              <span key={place} className={text === null ? "token" : "token piece"} title={`${node.start + place}: id ${id}`}>
                {text === null ? id : shown(text)}
              </span>
            );
          })}
        </p>
      )}
      {(node.ends ?? []).length > 0 && (
        <p>
          {count(node.ending ?? 0)} {node.ending === 1 ? "sequence ends" : "sequences end"} with it:{" "}
          {(node.ends ?? []).map((id) => (
            <span key={id}>
              <StepLink id={id} />{" "}
            </span>
          ))}
        </p>
      )}
    </section>
  );
}

/** White space as marks, so that it is seen. */
const shown = (text: string): string => visible(text).replaceAll(" ", "·").replaceAll("\n", "⏎").replaceAll("\t", "⇥") || "∅";
