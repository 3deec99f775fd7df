import { useSyncExternalStore } from "react";

import { age, exact } from "../format";

/** A moment: how long ago, and exactly on hover. */
export function When({ at }: { at: number | null | undefined }) {
  useTick();
  if (at === null || at === undefined) return <span className="quiet">not yet</span>;
  // Whoever sends a record says when it was; what no calendar reaches must not take the page down.
  if (Number.isNaN(new Date(at * 1000).getTime())) return <span className="quiet">no date ({at} s)</span>;
  return (
    <time dateTime={new Date(at * 1000).toISOString()} title={exact(at)}>
      {age(at)}
    </time>
  );
}

const TICK = 5_000;
const watchers = new Set<() => void>();
let timer = 0;
let tick = 0;

/** Renders anew every few seconds: one clock for all moments on the page, which runs while there are some. */
function useTick(): void {
  useSyncExternalStore(watch, () => tick);
}

function watch(watcher: () => void): () => void {
  if (watchers.size === 0) {
    timer = window.setInterval(() => {
      tick += 1;
      for (const each of watchers) each();
    }, TICK);
  }
  watchers.add(watcher);
  return () => {
    watchers.delete(watcher);
    if (watchers.size === 0) window.clearInterval(timer);
  };
}
