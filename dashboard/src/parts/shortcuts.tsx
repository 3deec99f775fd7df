import { useEffect, useRef } from "react";
import { useLocation } from "wouter";

type View = { path: string; name: string; key: string };

/** Keys of the whole page: `g` and then a view's letter, `/` for the filter, `?` for this list. */
export function Shortcuts({ views }: { views: readonly View[] }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [, go] = useLocation();
  useEffect(() => {
    let going = false;
    const press = (event: KeyboardEvent) => {
      const target = event.target as HTMLElement;
      if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName)) return;
      const view = going ? views.find((each) => each.key === event.key) : undefined;
      going = event.key === "g" && !going;
      if (view !== undefined) go(view.path);
      else if (event.key === "?") dialog.current?.showModal();
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
      <button type="button" aria-label="Keyboard shortcuts" onClick={() => dialog.current?.showModal()}>
        ?
      </button>
      <dialog ref={dialog} aria-label="Keyboard shortcuts">
        <h2>Keyboard shortcuts</h2>
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
          <Key keys="?" does="This list" />
        </dl>
        <form method="dialog">
          <button>Close</button>
        </form>
      </dialog>
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
