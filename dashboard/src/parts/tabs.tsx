import { useRef, type KeyboardEvent, type ReactNode } from "react";
import { useSearchParams } from "wouter";

export type Tab = { id: string; name: string; show: () => ReactNode };

/** Parts of a view, of which one is shown; which one is in the address. Arrows go from one to the next. */
export function Tabs({ label, tabs }: { label: string; tabs: readonly Tab[] }) {
  const [asked, setAsked] = useSearchParams();
  const list = useRef<HTMLDivElement>(null);
  const current = tabs.find((tab) => tab.id === asked.get("tab")) ?? tabs[0]!;
  const choose = (tab: Tab) => setAsked(tab === tabs[0] ? new URLSearchParams() : new URLSearchParams({ tab: tab.id }));
  const press = (event: KeyboardEvent) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (by === undefined) return;
    event.preventDefault();
    const next = (tabs.indexOf(current) + by + tabs.length) % tabs.length;
    choose(tabs[next]!);
    list.current?.querySelectorAll<HTMLElement>("[role=tab]")[next]?.focus();
  };
  return (
    <>
      <div ref={list} className="tabs" role="tablist" aria-label={label} onKeyDown={press}>
        {tabs.map((tab) => (
          <button key={tab.id} id={`tab-${tab.id}`} type="button" role="tab" aria-selected={tab === current} aria-controls={`panel-${tab.id}`} tabIndex={tab === current ? 0 : -1} onClick={() => choose(tab)}>
            {tab.name}
          </button>
        ))}
      </div>
      <div id={`panel-${current.id}`} role="tabpanel" aria-labelledby={`tab-${current.id}`}>
        {current.show()}
      </div>
    </>
  );
}
