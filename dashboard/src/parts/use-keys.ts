import { useEffect, useRef } from "react";

/** Call the action of a key that is pressed outside of fields; the letter after `g` goes to a view and is none. */
export function useKeys(actions: Readonly<Record<string, () => void>>): void {
  const latest = useRef(actions);
  latest.current = actions;
  useEffect(() => {
    let going = false;
    const press = (event: KeyboardEvent) => {
      if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|TEXTAREA|SELECT)$/.test((event.target as HTMLElement).tagName)) return;
      const was = going;
      going = event.key === "g" && !going;
      if (!was && !event.repeat && document.querySelector("dialog[open]") === null) latest.current[event.key]?.();
    };
    window.addEventListener("keydown", press);
    return () => window.removeEventListener("keydown", press);
  }, []);
}
