import { useQuery } from "@tanstack/react-query";
import { useEffect, useId, useLayoutEffect, useRef, useState, type KeyboardEvent } from "react";

import { ApiError, get, type Page, type Schemas } from "../api/client";
import { visible } from "../format";
import { offersAt, placeOf, tokensOf, type Field } from "../where";
import "./filter.css";

const PAUSE = 350;

/** The fields of the language, from the server that reads it. */
export function useFields(): readonly Field[] {
  const fields = useQuery({
    queryKey: ["fields"],
    staleTime: Infinity,
    queryFn: ({ signal }) => get<Page<Field>>("fields", { subject: "trajectories" }, signal),
  });
  return fields.data?.items ?? [];
}

/** `wantValues` is called once values may be completed. */
type Props = { where: string; set: (where: string) => void; values: Readonly<Record<string, readonly string[]>>; wantValues: () => void };

/** A filter in the `where` language: what can be written is offered, and what is wrong is shown where it is. */
export function Filter({ where, set, values, wantValues }: Props) {
  const [text, setText] = useState(where);
  const [caret, setCaret] = useState(where.length);
  const [open, setOpen] = useState(false);
  // Null: as it is offered, -1: none of them.
  const [moved, setMoved] = useState<number | null>(null);
  const field = useRef<HTMLInputElement>(null);
  // Where the caret goes once the field shows what was taken.
  const taken = useRef<number | null>(null);
  const own = useId();
  const fields = useFields();
  const tried = useTried(text);
  useEffect(() => setText(where), [where]);
  // At once: by the next frame more may have been typed, and the caret would go back before it.
  useLayoutEffect(() => {
    if (taken.current !== null) field.current?.setSelectionRange(taken.current, taken.current);
    taken.current = null;
  });
  const { from, to, offers, half } = open ? offersAt(text, caret, fields, values) : { from: 0, to: 0, offers: [], half: false };
  const at = moved ?? (half ? 0 : -1);
  const take = (offer: string) => {
    const rest = text.slice(to);
    const joint = offer.endsWith(".") || offer.endsWith("(") || rest.startsWith(" ") ? "" : " ";
    const next = text.slice(0, from) + offer + joint + rest;
    const place = from + offer.length + joint.length;
    setText(next);
    setCaret(place);
    setMoved(null);
    taken.current = place;
  };
  const press = (event: KeyboardEvent) => {
    if (event.key === "Escape" && open) {
      event.preventDefault();
      setOpen(false);
    } else if ((event.key === "ArrowDown" || event.key === "ArrowUp") && (offers.length > 0 || !open)) {
      event.preventDefault();
      setOpen(true);
      const count = offers.length + 1;
      if (open) setMoved(((at + 1 + (event.key === "ArrowDown" ? 1 : count - 1)) % count) - 1);
    } else if ((event.key === "Enter" || (event.key === "Tab" && moved !== null)) && offers[at] !== undefined) {
      event.preventDefault();
      take(offers[at]!.text);
    } else if (event.key === " " && event.ctrlKey) {
      event.preventDefault();
      setOpen(true);
    }
  };
  const placed = () => setCaret(field.current?.selectionStart ?? 0);
  const wrong = tried.error !== null;
  return (
    <form
      role="search"
      className="filter"
      onSubmit={(event) => {
        event.preventDefault();
        setOpen(false);
        set(text.trim());
      }}
    >
      <div className="filter-field">
        <input
          ref={field}
          type="search"
          role="combobox"
          aria-label="Filter, in the where language"
          aria-autocomplete="list"
          aria-expanded={offers.length > 0}
          aria-controls={`${own}-list`}
          aria-activedescendant={offers[at] === undefined ? undefined : `${own}-${at}`}
          aria-invalid={wrong}
          aria-describedby={`${own}-said`}
          placeholder="reward >= 0.5 and complete and created_at > now - 2h"
          spellCheck={false}
          autoComplete="off"
          value={text}
          onChange={(event) => {
            setText(event.target.value);
            setCaret(event.target.selectionStart ?? event.target.value.length);
            setOpen(true);
            setMoved(null);
            if (/[=!(]|\slike\s/.test(event.target.value)) wantValues();
          }}
          onKeyDown={press}
          onSelect={placed}
          onBlur={() => setOpen(false)}
        />
        <ul id={`${own}-list`} role="listbox" aria-label="What can stand here" className="offers" hidden={offers.length === 0}>
          {offers.map((offer, number) => (
            <li
              key={offer.text}
              id={`${own}-${number}`}
              role="option"
              aria-selected={number === at}
              onMouseDown={(event) => {
                // Before the field loses the focus.
                event.preventDefault();
                take(offer.text);
              }}
            >
              <code>{visible(offer.text)}</code> <span className="quiet">{visible(offer.says)}</span>
            </li>
          ))}
        </ul>
        <div id={`${own}-said`}>{tried.error !== null ? <Wrong error={tried.error} text={tried.text} /> : <Answered {...tried} />}</div>
      </div>
      <button>Filter</button>
    </form>
  );
}

/** The code of what is wrong with an expression. */
export const REFUSED = "invalid_query";
/** `waits`: the server has not said yet. */
type Tried = { text: string; error: ApiError | null; found: Schemas["Explanation"] | null; waits: boolean };

/** What the server makes of an expression, once nothing more was typed for a moment. */
function useTried(text: string): Tried {
  const [settled, setSettled] = useState(text);
  useEffect(() => {
    const waiting = window.setTimeout(() => setSettled(text), PAUSE);
    return () => window.clearTimeout(waiting);
  }, [text]);
  return useExplained(settled);
}

/** What the server makes of an expression; `error`: what is wrong with it. */
export function useExplained(text: string): Tried {
  const asked = text.trim() === "" ? null : text;
  const tried = useQuery({
    queryKey: ["explain", asked],
    enabled: asked !== null,
    retry: false,
    staleTime: 60_000,
    queryFn: ({ signal }) => get<Schemas["Explanation"]>("explain", { where: asked, subject: "trajectories" }, signal),
  });
  const refused = tried.error instanceof ApiError && tried.error.code === REFUSED ? tried.error : null;
  if (asked === null) return { text, error: null, found: null, waits: false };
  return { text, error: refused, found: tried.data ?? null, waits: tried.isLoading };
}

function Wrong({ error, text }: { error: ApiError; text: string }) {
  const place = placeOf(error.message, text);
  // The whole word where one begins there.
  const end = place === null ? 0 : (tokensOf(text).find((each) => each.from === place)?.to ?? place + 1);
  return (
    <div className="filter-wrong" role="alert">
      {place !== null && (
        <code className="in-place">
          {visible(text.slice(0, place))}
          <mark>{visible(text.slice(place, end) || " ")}</mark>
          {visible(text.slice(end))}
        </code>
      )}
      <strong>{visible(error.message)}</strong> {error.hint !== null && visible(error.hint)}
    </div>
  );
}

function Answered({ found }: Tried) {
  if (found === null || found.scanned.length === 0) return null;
  return (
    <p className="quiet answered">
      {found.scans ? "No index answers this: rows are looked at one by one." : `Looked at row by row: ${visible(found.scanned.join(" and "))}`}
    </p>
  );
}
