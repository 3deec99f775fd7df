import { useEffect, useRef, useState, type KeyboardEvent as Press } from "react";
import { Link, useLocation } from "wouter";

import { GLOSSARY } from "../glossary";
import type { View } from "./views-menu";
import "./help.css";

const PARTS = [
  { id: "keys", name: "Keys" },
  { id: "words", name: "Words" },
] as const;

/** Keys of the whole page: `g` and then a view's letter, `/` for the filter, `?` for the keys and the words of the page. */
export function Help({ views }: { views: readonly View[] }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [, go] = useLocation();
  useEffect(() => {
    let going = false;
    const press = (event: KeyboardEvent) => {
      const target = event.target as HTMLElement;
      if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName)) return;
      const view = going ? views.find((each) => each.key === event.key) : undefined;
      going = event.key === "g" && !going;
      if (view !== undefined) {
        dialog.current?.close();
        go(view.path);
      } else if (event.key === "?" && dialog.current?.open === false) dialog.current.showModal();
      else if (event.key === "/") {
        const field = document.querySelector<HTMLInputElement>("input[type=search]");
        if (field !== null) {
          event.preventDefault();
          field.focus();
        }
      }
    };
    window.addEventListener("keydown", press);
    return () => window.removeEventListener("keydown", press);
  }, [go, views]);
  return (
    <>
      <button type="button" aria-label="Help: keys and words" onClick={() => dialog.current?.showModal()}>
        ?
      </button>
      <dialog ref={dialog} className="help" aria-label="Keys and words">
        <Parts views={views} close={() => dialog.current?.close()} />
        <form method="dialog">
          <button>Close</button>
        </form>
      </dialog>
    </>
  );
}

function Parts({ views, close }: { views: readonly View[]; close: () => void }) {
  const [part, setPart] = useState<(typeof PARTS)[number]["id"]>("keys");
  const list = useRef<HTMLDivElement>(null);
  const press = (event: Press) => {
    if (event.key !== "ArrowRight" && event.key !== "ArrowLeft") return;
    event.preventDefault();
    const next = part === "keys" ? "words" : "keys";
    setPart(next);
    list.current?.querySelector<HTMLElement>(`#help-tab-${next}`)?.focus();
  };
  return (
    <>
      <div ref={list} className="tabs" role="tablist" aria-label="Help" onKeyDown={press}>
        {PARTS.map((each) => (
          <button key={each.id} id={`help-tab-${each.id}`} type="button" role="tab" aria-selected={each.id === part} aria-controls="help-panel" tabIndex={each.id === part ? 0 : -1} onClick={() => setPart(each.id)}>
            {each.name}
          </button>
        ))}
      </div>
      <div id="help-panel" role="tabpanel" aria-labelledby={`help-tab-${part}`} tabIndex={0}>
        {part === "keys" ? <Keys views={views} /> : <Words close={close} />}
      </div>
    </>
  );
}

function Keys({ views }: { views: readonly View[] }) {
  return (
    <dl className="keys">
      {views.map((view) => (
        <Key key={view.key} keys={`g ${view.key}`} does={view.name} />
      ))}
      <Key keys="/" does="Filter" />
      <Key keys="j k" does="Next and previous row or step" />
      <Key keys="Enter" does="Open the row" />
      <Key keys="x J K" does="In the list of trajectories: choose the row, and the ones after and before it" />
      <Key keys="p" does="In the steps of a trajectory: to the one that this one goes on from" />
      <Key keys="a r s" does="In a review: accept, reject, skip" />
      <Key keys="1 2" does="In a review: labels; in a comparison: the left or the right one is better" />
      <Key keys="n p" does="In a comparison: next and previous pair" />
      <Key keys="u" does="In a review or comparison: undo the latest" />
      <Key keys="?" does="This help" />
    </dl>
  );
}

/** What the page's words mean, each with the view in which it is seen. */
function Words({ close }: { close: () => void }) {
  return (
    <>
      {GLOSSARY.map((chapter) => (
        <section key={chapter.name} aria-label={chapter.name}>
          <h2>{chapter.name}</h2>
          <dl className="words">
            {chapter.words.map((each) => (
              <div key={each.word}>
                <dt>{each.word}</dt>
                <dd>
                  {each.means}{" "}
                  <Link href={each.path} onClick={close}>
                    {each.seen}
                  </Link>
                </dd>
              </div>
            ))}
          </dl>
        </section>
      ))}
    </>
  );
}

function Key({ keys, does }: { keys: string; does: string }) {
  return (
    <>
      <dt>
        {keys.split(" ").map((each) => (
          <kbd key={each}>{each}</kbd>
        ))}
      </dt>
      <dd>{does}</dd>
    </>
  );
}
