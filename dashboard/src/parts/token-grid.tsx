import { useVirtualizer } from "@tanstack/react-virtual";
import { useRef } from "react";
import { useSearchParams } from "wouter";

import { count, decimal, visible } from "../format";
import { usePieces } from "../pieces";
import { cellsOf, lengthOf, shadeIn, shadeOf, spreadOf, type Cell } from "../tokens";
import { FORKS } from "./prompt-diff";
import "./token-grid.css";

const ACROSS = 16;
const ROW = 26;

type Step = Parameters<typeof cellsOf>[0] & { vocabulary?: string | null; fork_reason?: string | null };
type Props = {
  step: Step;
  /** How many ids of the prompt the step before had, and what stood behind these; null where it had no more. */
  shared: number | null;
  instead: number | null;
  /** Values for each token of the reply, by the name of their annotation. */
  colours: Readonly<Record<string, readonly (number | null)[]>>;
};

/** The ids of a step, as numbers or as text, coloured by how likely they were or by an annotation. */
export function TokenGrid({ step, shared, instead, colours }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const [asked, setAsked] = useSearchParams();
  const length = lengthOf(step);
  const virtual = useVirtualizer({
    count: Math.ceil(length / ACROSS),
    getScrollElement: () => box.current,
    estimateSize: () => ROW,
    overscan: 10,
  });
  const items = virtual.getVirtualItems();
  const cells = items.map((item) => cellsOf(step, item.index * ACROSS, (item.index + 1) * ACROSS));
  const asText = asked.get("show") === "text";
  const pieces = usePieces(asText ? (step.vocabulary ?? null) : null, asText ? cells.flat().map((each) => each.id) : []);
  if (length === 0) return <p className="quiet">This step has no ids: its engine gave none.</p>;
  const prompt = step.prompt_ids?.length ?? 0;
  const broken = shared !== null && instead !== null && shared < prompt ? shared : null;
  const by = asked.get("colour");
  const values = by === null ? undefined : colours[by];
  const spread = values === undefined ? null : spreadOf(values);
  const change = (name: string, value: string) =>
    setAsked(
      (before) => {
        const next = new URLSearchParams(before);
        if (value === "") next.delete(name);
        else next.set(name, value);
        return next;
      },
      { replace: true },
    );
  const go = (place: number) => virtual.scrollToIndex(Math.floor(place / ACROSS), { align: "start" });
  return (
    <>
      <div className="bar">
        <label>
          Show{" "}
          <select value={asText ? "text" : "ids"} onChange={(event) => change("show", event.target.value === "text" ? "text" : "")}>
            <option value="ids">ids</option>
            <option value="text">text</option>
          </select>
        </label>
        <label>
          Colour by{" "}
          <select value={values === undefined ? "" : by!} onChange={(event) => change("colour", event.target.value)}>
            <option value="">log-probability</option>
            {Object.keys(colours).map((name) => (
              <option key={name} value={name}>
                {visible(name)}
              </option>
            ))}
          </select>
        </label>
        <button type="button" onClick={() => go(0)}>
          Prompt
        </button>
        <button type="button" onClick={() => go(prompt)}>
          Reply
        </button>
        {broken !== null && (
          <button type="button" onClick={() => go(broken)}>
            Where the prefix broke
          </button>
        )}
        <span className="quiet">
          {count(prompt)} of the prompt, {count(length - prompt)} of the reply
        </span>
      </div>
      {asText && pieces.missing && <p className="quiet">This server has no tokenizer of the vocabulary, so ids are shown.</p>}
      {broken !== null && (
        <p className="broke">
          The prompt has {count(broken)} of its {count(prompt)} ids from the step before; there {step.prompt_ids![broken]} stands where {instead} stood. {step.fork_reason != null && `${step.fork_reason}: ${FORKS[step.fork_reason] ?? ""}`}
        </p>
      )}
      {broken === null && shared !== null && shared > 0 && (
        <p className="quiet">
          {instead === null ? `It goes on from all ${count(shared)} ids of the step before.` : `The prompt is the beginning of the step before.`}
        </p>
      )}
      <p className="legend quiet">
        <span className="token">prompt</span> <span className="token reply s0">{spread === null ? "likely" : decimal(spread.low)}</span>{" "}
        <span className="token reply s5">{spread === null ? "a surprise" : decimal(spread.high)}</span> <span className="token reply masked">not sampled by the policy</span>
        {broken !== null && <span className="token broken">the prefix broke here, at {broken}</span>}
      </p>
      <div ref={box} className="tokens" tabIndex={0} role="group" aria-label={`${length} tokens, ${prompt} of them the prompt`}>
        <div style={{ height: virtual.getTotalSize(), position: "relative" }}>
          {items.map((item, row) => (
            <div key={item.key} className="token-row" style={{ transform: `translateY(${item.start}px)` }}>
              <span className="quiet place">{item.index * ACROSS}</span>
              {cells[row]!.map((cell) => (
                <Token
                  key={cell.place}
                  cell={cell}
                  broken={broken === cell.place}
                  text={asText ? pieces.text(cell.id) : null}
                  shade={spread === null ? (cell.logprob === null || !cell.sampled ? null : shadeOf(cell.logprob)) : cell.reply ? shadeIn(spread, values![cell.place - prompt]) : null}
                  value={values?.[cell.place - prompt] ?? null}
                />
              ))}
            </div>
          ))}
        </div>
      </div>
    </>
  );
}

type TokenProps = { cell: Cell; broken: boolean; text: string | null; shade: number | null; value: number | null };

function Token({ cell, broken, text, shade, value }: TokenProps) {
  const said = `${cell.logprob === null ? "" : `, log-probability ${cell.logprob.toFixed(4)}`}${value === null ? "" : `, value ${value}`}`;
  const kind = cell.reply ? (cell.sampled ? "sampled" : "not sampled") : "prompt";
  const classes = ["token", cell.reply ? "reply" : "", cell.reply && !cell.sampled ? "masked" : "", shade === null ? "" : `s${shade}`, broken ? "broken" : "", text === null ? "" : "piece"];
  return (
    <span className={classes.filter((each) => each !== "").join(" ")} title={`${cell.place}: id ${cell.id}, ${kind}${said}${text === null ? "" : `, ${JSON.stringify(visible(text))}`}`}>
      {text === null ? cell.id : shown(text)}
    </span>
  );
}

/** White space as marks, so that it is seen. */
const shown = (text: string): string => visible(text).replaceAll(" ", "·").replaceAll("\n", "⏎").replaceAll("\t", "⇥") || "∅";
