import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect, useMemo, type KeyboardEvent } from "react";
import { useSearchParams } from "wouter";

import { get, type Page, type Schemas } from "../api/client";
import { sharedLength, idAt } from "../tokens";
import { ExchangeView } from "./exchange";
import { JsonView } from "./json-view";
import { Messages } from "./messages";
import { Problem } from "./problem";
import { PromptDiff } from "./prompt-diff";
import { StepFacts } from "./step-facts";
import { TokenGrid } from "./token-grid";

type Step = Schemas["Step"];
const TABS = ["messages", "tokens", "diff", "facts", "call", "record"] as const;
type Tab = (typeof TABS)[number];
/** What of the step each part shows; long sequences are not asked for where nobody looks at them. */
const PARTS: Record<Tab, string> = { messages: "messages", tokens: "tokens,logprobs", diff: "messages", facts: "messages", call: "messages", record: "" };

const tabOf = (asked: URLSearchParams): Tab => TABS.find((each) => each === asked.get("tab")) ?? "messages";

const stepQuery = (id: string, include: string) => ({
  queryKey: ["step", id, include],
  gcTime: 30_000,
  structuralSharing: false,
  queryFn: ({ signal }: { signal: AbortSignal }) => get<Step>(`steps/${encodeURIComponent(id)}`, { include }, signal),
});

const useStep = (id: string | null, include: string) => useQuery({ ...stepQuery(id ?? "", include), enabled: id !== null });

/** Ask for the step that an address names while its trajectory's are still on their way. */
export function useStepAhead(asked: URLSearchParams): void {
  const client = useQueryClient();
  const id = asked.get("step");
  const tab = tabOf(asked);
  useEffect(() => {
    if (id !== null) void client.prefetchQuery(stepQuery(id, PARTS[tab]));
    // Once: what is chosen later is asked for where it is shown.
  }, []);
}

/** One step in the way that is chosen, which is in the address. `before`: what its prompt is compared with. */
export function StepView({ id, before }: { id: string; before: string | null }) {
  const [asked, setAsked] = useSearchParams();
  const tab = tabOf(asked);
  const step = useStep(id, PARTS[tab]);
  const choose = (name: Tab) =>
    setAsked(
      (now) => {
        const next = new URLSearchParams(now);
        if (name === TABS[0]) next.delete("tab");
        else next.set("tab", name);
        return next;
      },
      { replace: true },
    );
  const press = (event: KeyboardEvent<HTMLDivElement>) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (by === undefined) return;
    event.preventDefault();
    const next = (TABS.indexOf(tab) + by + TABS.length) % TABS.length;
    choose(TABS[next]!);
    event.currentTarget.querySelectorAll<HTMLElement>("[role=tab]")[next]?.focus();
  };
  return (
    <section className="detail" aria-label="Step">
      <div role="tablist" aria-label="Parts of the step" className="tabs" onKeyDown={press}>
        {TABS.map((name) => (
          <button key={name} id={`tab-${name}`} type="button" role="tab" aria-selected={tab === name} aria-controls="step-panel" tabIndex={tab === name ? 0 : -1} onClick={() => choose(name)}>
            {name}
          </button>
        ))}
      </div>
      <div id="step-panel" role="tabpanel" aria-labelledby={`tab-${tab}`}>
        {step.isError && <Problem error={step.error} again={() => void step.refetch()} />}
        {step.isPending && <p className="quiet">Loading</p>}
        {step.data !== undefined && <Shown tab={tab} step={step.data} before={before} />}
      </div>
    </section>
  );
}

function Shown({ tab, step, before }: { tab: Tab; step: Step; before: string | null }) {
  switch (tab) {
    case "messages":
      return <Messages step={step} />;
    case "tokens":
      return <Tokens step={step} before={before} />;
    case "diff":
      return <PromptDiff step={step} before={before} />;
    case "facts":
      return <StepFacts step={step} />;
    case "call":
      return <ExchangeView step={step} />;
    case "record":
      return <JsonView value={Object.fromEntries(Object.entries(step).filter(([, value]) => value !== null))} />;
  }
}

function Tokens({ step, before }: { step: Step; before: string | null }) {
  const earlier = useStep(before, PARTS.tokens);
  const annotations = useQuery({
    queryKey: ["annotations", step.step_id],
    enabled: (step.annotations ?? []).length > 0,
    queryFn: ({ signal }) => get<Page<Schemas["Annotation"]>>("annotations", { step_ids: step.step_id }, signal),
  });
  const shared = useMemo(() => (earlier.data?.prompt_ids == null ? null : sharedLength(earlier.data, step.prompt_ids ?? [])), [earlier.data, step]);
  const length = step.response_ids?.length ?? 0;
  const colours = Object.fromEntries(
    (annotations.data?.items ?? [])
      .filter((each) => each.per_token && each.shape.length === 1 && each.shape[0] === length && Array.isArray(each.values))
      .map((each) => [each.name, each.values as (number | null)[]]),
  );
  return <TokenGrid step={step} shared={shared} instead={earlier.data === undefined || shared === null ? null : idAt(earlier.data, shared)} colours={colours} />;
}
