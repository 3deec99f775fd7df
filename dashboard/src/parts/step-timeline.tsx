import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useMemo, useRef, type KeyboardEvent } from "react";

import type { Schemas } from "../api/client";
import type { Placed } from "../branches";
import { count, decimal, visible } from "../format";
import { lanesOf, measuresOf, type Lane, type Measures } from "../lanes";
import { FORKS } from "./prompt-diff";
import "./step-timeline.css";

type Step = Schemas["Step"];
const ROW = 52;
const ACROSS = 14;
const MOST_LANES = 10;

type Props = { placed: readonly Placed<Step>[]; chosen: string | null; choose: (id: string) => void };

/** The steps in the order of their commits, their branches as lanes, their time and tokens as bars. */
export function StepTimeline({ placed, chosen, choose }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const at = Math.max(0, placed.findIndex((each) => each.step.step_id === chosen));
  const lanes = useMemo(() => lanesOf(placed), [placed]);
  const measures = useMemo(() => measuresOf(placed.map((each) => each.step)), [placed]);
  const width = Math.min(MOST_LANES, lanes.reduce((most, each) => Math.max(most, each.lane + 1, ...each.through.map((lane) => lane + 1)), 1));
  const virtual = useVirtualizer({ count: placed.length, getScrollElement: () => box.current, estimateSize: () => ROW, overscan: 10 });
  // An address can name a step that is far down.
  useEffect(() => virtual.scrollToIndex(at, { align: "auto" }), [chosen]);
  const press = (event: KeyboardEvent) => {
    const step = { j: 1, ArrowDown: 1, k: -1, ArrowUp: -1, PageDown: 10, PageUp: -10, Home: -placed.length, End: placed.length }[event.key];
    const next = event.key === "p" ? placed.findIndex((each) => each.step.step_id === placed[at]?.step.parent_step_id) : step === undefined ? -1 : Math.max(0, Math.min(placed.length - 1, at + step));
    if (placed[next] === undefined) return;
    event.preventDefault();
    choose(placed[next]!.step.step_id);
  };
  return (
    <div ref={box} className="timeline" role="listbox" aria-label="Steps" aria-activedescendant={`step-${at}`} tabIndex={0} onKeyDown={press}>
      <div style={{ height: virtual.getTotalSize(), position: "relative" }}>
        {virtual.getVirtualItems().map((item) => {
          const each = placed[item.index]!;
          return (
            <div
              key={item.key}
              id={`step-${item.index}`}
              role="option"
              aria-selected={item.index === at}
              className={`step ${item.index === at ? "chosen" : ""} ${each.step.excluded_reason != null ? "out" : ""}`}
              style={{ transform: `translateY(${item.start}px)` }}
              onClick={() => choose(each.step.step_id)}
            >
              <Lanes lane={lanes[item.index]!} width={width} />
              <Said placed={each} number={item.index} />
              <Bars measures={measures[item.index]!} step={each.step} />
            </div>
          );
        })}
      </div>
    </div>
  );
}

function Said({ placed: { step, fork }, number }: { placed: Placed<Step>; number: number }) {
  return (
    <span className="step-said">
      <span>
        {step.step_index ?? number} {step.agent != null && <span className="quiet">{visible(step.agent)}</span>}
        {fork !== null && (
          <span className="fork" title={FORKS[fork]}>
            {fork}
          </span>
        )}
      </span>
      <span className="quiet step-more">
        {count(step.prompt_length ?? 0)} + {count(step.response_length ?? 0)} tokens
        {step.reward != null && `, reward ${decimal(step.reward)}`}
        {step.excluded_reason != null && `, ${visible(step.excluded_reason)}`}
      </span>
    </span>
  );
}

const middle = (lane: number): number => Math.min(lane, MOST_LANES - 1) * ACROSS + ACROSS / 2;

function Lanes({ lane, width }: { lane: Lane; width: number }) {
  const x = middle(lane.lane);
  return (
    <svg className="lanes" width={width * ACROSS} height={ROW} aria-hidden>
      {lane.through.map((each) => (
        <line key={each} x1={middle(each)} x2={middle(each)} y1={0} y2={ROW} className={`lane lane${each % 5}`} />
      ))}
      {!lane.begins && <line x1={x} x2={x} y1={0} y2={ROW / 2} className={`lane lane${lane.lane % 5}`} />}
      {lane.from !== null && <path d={`M ${middle(lane.from)} 0 C ${middle(lane.from)} ${ROW / 2}, ${x} 0, ${x} ${ROW / 2}`} className={`lane lane${lane.lane % 5}`} />}
      {lane.goesOn && <line x1={x} x2={x} y1={ROW / 2} y2={ROW} className={`lane lane${lane.lane % 5}`} />}
      <circle cx={x} cy={ROW / 2} r={4} className={`dot lane${lane.lane % 5}`} />
    </svg>
  );
}

function Bars({ measures, step }: { measures: Measures; step: Step }) {
  const latency = step.latency_ms == null ? "not timed" : `${count(Math.round(step.latency_ms))} ms`;
  return (
    <span className="bars" title={`${latency}; ${count(step.prompt_length ?? 0)} tokens of the prompt, ${count(step.response_length ?? 0)} of the reply`}>
      <span className="bar-row">
        <span className="bar-latency" style={{ width: `${100 * measures.latency}%` }} />
      </span>
      <span className="bar-row">
        <span className="bar-prompt" style={{ width: `${100 * measures.prompt}%` }} />
        <span className="bar-reply" style={{ width: `${100 * measures.reply}%` }} />
      </span>
      <span className="quiet bar-said">{latency}</span>
    </span>
  );
}
