import { useMemo } from "react";

import { diffOf } from "../diff";
import { count, cut, visible } from "../format";
import "./text-diff.css";

const MOST_TEXT = 20_000;
const SAME = 400;

/** A text as it was and as it should be, word by word: what goes is struck out, what comes underlined. */
export function TextDiff({ before, after, label }: { before: string; after: string; label: string }) {
  const edits = useMemo(() => diffOf(wordsOf(cut(before, MOST_TEXT).text), wordsOf(cut(after, MOST_TEXT).text)), [before, after]);
  return (
    <div className="text-diff" role="region" aria-label={label} tabIndex={0}>
      {edits.map((edit, number) => {
        const text = edit.items.join("");
        if (edit.kind === "gone") return <del key={number}>{visible(text)}</del>;
        if (edit.kind === "new") return <ins key={number}>{visible(text)}</ins>;
        // Of what stays, its ends are enough to know the place.
        if (text.length <= 2 * SAME) return <span key={number}>{visible(text)}</span>;
        return (
          <span key={number}>
            {visible(text.slice(0, SAME))}
            <span className="quiet"> … {count(text.length - 2 * SAME)} characters … </span>
            {visible(text.slice(-SAME))}
          </span>
        );
      })}
      {Math.max(before.length, after.length) > MOST_TEXT && <p className="quiet">Only the first {count(MOST_TEXT)} characters are compared.</p>}
    </div>
  );
}

const wordsOf = (text: string): string[] => text.match(/\s+|[^\s]+/g) ?? [];
