import { useState } from "react";

import { COLUMNS, USUAL, type Column } from "../columns";
import { visible } from "../format";
import { forgetFilter, savedFilters, saveFilter } from "../saved";

/** Which columns are shown; the id always is. */
export function ColumnMenu({ columns, set }: { columns: readonly Column[]; set: (ids: string) => void }) {
  const shown = new Set(columns.map((each) => each.id));
  const change = (id: string, on: boolean) => {
    const ids = COLUMNS.map((each) => each.id).filter((each) => (each === id ? on : shown.has(each)));
    set(ids.join() === USUAL.join() ? "" : ids.join(","));
  };
  return (
    <details className="menu">
      <summary>Columns</summary>
      <div className="menu-box">
        {COLUMNS.filter((each) => each.id !== "trajectory").map((each) => (
          <label key={each.id}>
            <input type="checkbox" checked={shown.has(each.id)} onChange={(event) => change(each.id, event.target.checked)} /> {each.name}
          </label>
        ))}
        <button type="button" onClick={() => set("")}>
          The usual ones
        </button>
      </div>
    </details>
  );
}

/** Filters that this browser keeps, with order, sort and columns. */
export function SavedMenu({ query, go }: { query: string; go: (query: string) => void }) {
  const [filters, setFilters] = useState(savedFilters);
  const [name, setName] = useState("");
  const [refused, setRefused] = useState(false);
  return (
    <details className="menu" onToggle={() => setFilters(savedFilters())}>
      <summary>Saved</summary>
      <div className="menu-box">
        {filters.length === 0 && <p className="quiet">No filter is saved in this browser.</p>}
        {filters.map((each) => (
          <div key={each.name} className="inline">
            <button type="button" className="grow" title={visible(new URLSearchParams(each.query).get("where") ?? "")} onClick={() => go(each.query)}>
              {visible(each.name)}
            </button>
            <button type="button" aria-label={`Forget ${visible(each.name)}`} onClick={() => setFilters(forgetFilter(each.name))}>
              ×
            </button>
          </div>
        ))}
        <form
          className="inline"
          onSubmit={(event) => {
            event.preventDefault();
            if (name.trim() === "") return;
            const kept = saveFilter({ name: name.trim(), query });
            setRefused(kept === null);
            if (kept !== null) {
              setFilters(kept);
              setName("");
            }
          }}
        >
          <input aria-label="Name for this filter" placeholder="name for this one" value={name} onChange={(event) => setName(event.target.value)} />
          <button disabled={name.trim() === ""}>Save</button>
        </form>
        {refused && <p role="alert">This may hold a key, or the browser keeps nothing: it is not saved.</p>}
      </div>
    </details>
  );
}
