import { useEffect, useRef, useState, type ReactNode } from "react";
import { Link, useLocation } from "wouter";

import "./views-menu.css";

export type View = { path: string; name: string; key: string };

/** Links to the views: in a row, and behind a button where the window is narrow. `end` stands after them. */
export function ViewsMenu({ views, end }: { views: readonly View[]; end: ReactNode }) {
  const [location] = useLocation();
  const [open, setOpen] = useState(false);
  const button = useRef<HTMLButtonElement>(null);
  const here = views.find((view) => isHere(view.path, location));
  // Another view has been chosen, by whatever way.
  useEffect(() => setOpen(false), [location]);
  return (
    <div
      className="views-menu"
      onKeyDown={(event) => {
        if (event.key !== "Escape" || !open) return;
        setOpen(false);
        button.current?.focus();
      }}
      onBlur={(event) => {
        // A press on what takes no focus, such as a touch beside a link, goes to nothing and closes nothing.
        if (event.relatedTarget !== null && !event.currentTarget.contains(event.relatedTarget)) setOpen(false);
      }}
    >
      <button ref={button} type="button" className="menu" aria-label={`Views: ${here?.name ?? "choose one"}`} aria-expanded={open} aria-controls="views" onClick={() => setOpen(!open)}>
        <span aria-hidden="true">☰ {here?.name ?? "Views"}</span>
      </button>
      <ul id="views" className={open ? "views open" : "views"}>
        {views.map((view) => (
          <li key={view.path}>
            <Link href={view.path} aria-current={view === here ? "page" : undefined} onClick={() => setOpen(false)}>
              {view.name}
            </Link>
          </li>
        ))}
        {end !== null && <li className="end">{end}</li>}
      </ul>
    </div>
  );
}

const isHere = (path: string, location: string): boolean => (path === "/" ? location === "/" : location === path || location.startsWith(`${path}/`));
