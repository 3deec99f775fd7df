import { useVirtualizer } from "@tanstack/react-virtual";
import { useRef } from "react";

import { cellsOf, lengthOf, shadeOf, type Cell } from "../tokens";

const ACROSS = 16;
const ROW = 26;

type Step = Parameters<typeof cellsOf>[0];

/** The ids of a step. `shared`: how many of them the step before it had, for where its prefix broke. */
export function TokenGrid({ step, shared }: { step: Step; shared: number | null }) {
  const box = useRef<HTMLDivElement>(null);
  const length = lengthOf(step);
  const virtual = useVirtualizer({
    count: Math.ceil(length / ACROSS),
    getScrollElement: () => box.current,
    estimateSize: () => ROW,
    overscan: 10,
  });
  if (length === 0) return <p className="quiet">This step has no ids: its engine gave none.</p>;
  const prompt = step.prompt_ids?.length ?? 0;
  return (
    <>
      <p className="legend quiet">
        <span className="token">prompt</span> <span className="token reply s0">likely</span> <span className="token reply s5">a surprise</span>{" "}
        <span className="token reply masked">not sampled by the policy</span>
        {shared !== null && shared < prompt && <span className="token broken">the prefix broke here, at {shared}</span>}
      </p>
      <div ref={box} className="tokens" tabIndex={0} aria-label={`${length} tokens, ${prompt} of them the prompt`}>
        <div style={{ height: virtual.getTotalSize(), position: "relative" }}>
          {virtual.getVirtualItems().map((item) => (
            <div key={item.key} className="token-row" style={{ transform: `translateY(${item.start}px)` }}>
              <span className="quiet place">{item.index * ACROSS}</span>
              {cellsOf(step, item.index * ACROSS, (item.index + 1) * ACROSS).map((cell) => (
                <Token key={cell.place} cell={cell} broken={shared !== null && shared < prompt && cell.place === shared} />
              ))}
            </div>
          ))}
        </div>
      </div>
    </>
  );
}

function Token({ cell, broken }: { cell: Cell; broken: boolean }) {
  const shade = cell.logprob === null || !cell.sampled ? "" : ` s${shadeOf(cell.logprob)}`;
  const said = cell.logprob === null ? "" : `, log-probability ${cell.logprob.toFixed(4)}`;
  const kind = cell.reply ? (cell.sampled ? "sampled" : "not sampled") : "prompt";
  return (
    <span className={`token${cell.reply ? ` reply${cell.sampled ? "" : " masked"}` : ""}${shade}${broken ? " broken" : ""}`} title={`${cell.place}: id ${cell.id}, ${kind}${said}`}>
      {cell.id}
    </span>
  );
}
