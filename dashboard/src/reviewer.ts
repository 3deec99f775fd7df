/** Who reviews here: a name that goes with what they say, kept for this tab alone and the same all over the page. */

import { useSyncExternalStore } from "react";

const NAME = "reviewer";
/** What the source of feedback is where nobody said a name. */
export const NOBODY = "dashboard";
const watchers = new Set<() => void>();

const watch = (watcher: () => void) => {
  watchers.add(watcher);
  return () => watchers.delete(watcher);
};
const read = () => sessionStorage.getItem(NAME) ?? "";
const keep = (name: string) => {
  sessionStorage.setItem(NAME, name);
  for (const each of watchers) each();
};

export const useReviewer = (): [string, (name: string) => void] => [useSyncExternalStore(watch, read), keep];

/** The source of what is said here. */
export const sourceOf = (by: string): string => (by.trim() === "" ? NOBODY : by.trim());
