import { useState } from "react";

import { count, cut, visible } from "../format";

const MOST_PARSED = 2_000_000;
const MOST_TEXT = 2_000;
const MOST_ENTRIES = 100;
const LEAST_FOLDED = 3;

/** An object or a list that a text is the JSON of; undefined where it is none, or too long to be read as one. */
export function parsed(text: string): object | undefined {
  if (text.length > MOST_PARSED || !/^\s*[[{]/.test(text)) return undefined;
  try {
    const value = JSON.parse(text) as unknown;
    return typeof value === "object" && value !== null ? value : undefined;
  } catch {
    return undefined;
  }
}

/** A value of JSON. What is nested is folded, and only made when it is opened, however deep it goes. */
export function JsonView({ value, name, depth = 0 }: { value: unknown; name?: string; depth?: number }) {
  const entries = typeof value === "object" && value !== null ? Object.entries(value) : null;
  const [open, setOpen] = useState(depth === 0 || (depth === 1 && (entries?.length ?? 0) <= LEAST_FOLDED));
  const [most, setMost] = useState(MOST_ENTRIES);
  const label = name === undefined ? null : <span className="json-name">{visible(cut(name, 200).text)}: </span>;
  if (entries === null) {
    return (
      <div className="json">
        {label}
        <Scalar value={value} />
      </div>
    );
  }
  const list = Array.isArray(value);
  return (
    <details className="json" open={open} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>
        {label}
        <span className="quiet">
          {list ? `[${count(entries.length)}]` : `{${count(entries.length)}}`} {!open && visible(preview(entries, list))}
        </span>
      </summary>
      {open && entries.slice(0, most).map(([key, each]) => <JsonView key={key} name={key} value={each} depth={depth + 1} />)}
      {open && entries.length > most && (
        <button type="button" onClick={() => setMost(most + 10 * MOST_ENTRIES)}>
          {count(entries.length - most)} more
        </button>
      )}
    </details>
  );
}

function Scalar({ value }: { value: unknown }) {
  const [most, setMost] = useState(MOST_TEXT);
  if (typeof value !== "string") return <span className="json-plain">{String(value)}</span>;
  const part = cut(value, most);
  return (
    <span className="json-text">
      {JSON.stringify(visible(part.text)).replaceAll("\\\\u", "\\u").replaceAll("\\n", "\n")}
      {part.left > 0 && (
        <button type="button" onClick={() => setMost(most * 100)}>
          {count(part.left)} more characters
        </button>
      )}
    </span>
  );
}

function preview(entries: readonly [string, unknown][], list: boolean): string {
  const said = entries.slice(0, 4).map(([key, each]) => {
    const shown = typeof each === "object" && each !== null ? (Array.isArray(each) ? "[…]" : "{…}") : cut(String(each), 30).text;
    return list ? shown : `${cut(key, 30).text}: ${shown}`;
  });
  return said.join(", ");
}
