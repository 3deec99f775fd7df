import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useId, useState, type ReactNode } from "react";
import { Link, useLocation } from "wouter";

import { needs, useScopes } from "../api/scopes";
import { decide, exportLines, freeze, label, remove, valueOf, whereOf, type Told } from "../bulk";
import { count, visible } from "../format";
import { sourceOf, useReviewer } from "../reviewer";
import { Problem } from "./problem";
import { YouAre } from "./you-are";
import "./bulk.css";

const MOST_EXPORTED = 500;
type Act = "label" | "exclude" | "delete" | "freeze";
type Props = { ids: readonly string[]; where: string; loaded: number; all: () => void; none: () => void };

/** What can be done with the rows that are chosen, and with all that a filter matches. */
export function Bulk({ ids, where, loaded, all, none }: Props) {
  const may = useScopes();
  const client = useQueryClient();
  const [, go] = useLocation();
  const source = sourceOf(useReviewer()[0]);
  const [act, setAct] = useState<Act | null>(null);
  const [done, setDone] = useState(0);
  const work = useMutation({
    mutationFn: (run: (told: Told) => Promise<ReactNode>) => {
      setDone(0);
      return run(setDone);
    },
    onSuccess: () => {
      setAct(null);
      void client.invalidateQueries({ queryKey: ["trajectories"] });
      void client.invalidateQueries({ queryKey: ["scan", "facets"] });
    },
  });
  const said = (what: string) => `${what} ${count(ids.length)}`;
  const some = ids.length > 0;
  const button = (which: Act, name: string, on: boolean, says = needs("write", name)) => (
    <button type="button" disabled={!on || work.isPending} title={on || (which === "delete" ? may.admin : may.write) ? undefined : says} aria-expanded={act === which} onClick={() => setAct(act === which ? null : which)}>
      {name}
    </button>
  );
  return (
    <section className="bulk" aria-label="Actions on many">
      <div className="bar">
        <span>{some ? `${count(ids.length)} chosen` : "None chosen"}</span>
        <button type="button" disabled={loaded === 0 || ids.length === loaded} onClick={all}>
          Choose all {count(loaded)} loaded
        </button>
        <button type="button" disabled={!some} onClick={none}>
          Choose none
        </button>
        <button type="button" disabled={ids.length !== 2} title={ids.length === 2 ? undefined : "Choose two"} onClick={() => go(`/curation?${new URLSearchParams({ tab: "compare", first: ids[0]!, second: ids[1]! })}`)}>
          Compare
        </button>
        {button("label", "Label", some && may.write)}
        {button("exclude", "Exclude", some && may.write)}
        <button type="button" disabled={!some || !may.write || work.isPending} onClick={() => work.mutate(async (told) => (await decide(ids, "ready", null, source, told), said("Included")))}>
          Include
        </button>
        <button type="button" disabled={!some || !may.write || work.isPending} onClick={() => work.mutate(async (told) => (await decide(ids, null, null, source, told), said("Took decisions back of")))}>
          Take back
        </button>
        <button
          type="button"
          disabled={!some || ids.length > MOST_EXPORTED || work.isPending}
          title={ids.length > MOST_EXPORTED ? `At most ${MOST_EXPORTED}: freeze a dataset and export that` : undefined}
          onClick={() => work.mutate(async (told) => (download(await exportLines(ids, told), "trajectories.jsonl"), said("Exported")))}
        >
          Export
        </button>
        {button("freeze", "Freeze a dataset", may.write)}
        {button("delete", "Delete", some && may.admin, needs("admin", "Deleting"))}
      </div>
      {may.known && !may.admin && (
        <p className="quiet">{may.write ? needs("admin", "Deleting") : "Label, Exclude, Include, Take back and Freeze need a key with the scope write, Delete one with admin; this one has not got it."}</p>
      )}
      {(act === "label" || act === "exclude") && <YouAre />}
      {act === "label" && <LabelForm run={(name, value) => work.mutate(async (told) => (await label(ids, name, valueOf(value), source, told), said("Labelled")))} />}
      {act === "exclude" && (
        <OneField what="Why" go="Exclude" run={(reason) => work.mutate(async (told) => (await decide(ids, "exclude", reason, source, told), said("Excluded")))} />
      )}
      {act === "delete" && (
        <OneField what={`Type ${ids.length} to delete them for good, with all that is theirs`} go="Delete for good" wanted={String(ids.length)} run={() => work.mutate(async (told) => (await remove(ids, source, told), none(), said("Deleted")))} />
      )}
      {act === "freeze" && <FreezeForm ids={ids} where={where} run={(asked) => work.mutate(async () => <Frozen version={(await freeze(asked)).version} />)} />}
      <p role="status" className="quiet">
        {work.isPending ? `Working: ${count(done)} of ${count(ids.length)}` : work.isSuccess ? work.data : ""}
      </p>
      {work.isError && <Problem error={work.error} />}
    </section>
  );
}

const Frozen = ({ version }: { version: string }) => (
  <>
    Frozen as <Link href={`/datasets/${encodeURIComponent(version)}`}>{visible(version)}</Link>: look at it, verify or export it there
  </>
);

function OneField({ what, go, wanted, run }: { what: string; go: string; wanted?: string; run: (text: string) => void }) {
  const [text, setText] = useState("");
  const right = wanted === undefined ? text.trim() !== "" : text.trim() === wanted;
  return (
    <form className="inline" onSubmit={(event) => (event.preventDefault(), right && run(text.trim()))}>
      <label>
        {what} <input value={text} autoFocus onChange={(event) => setText(event.target.value)} />
      </label>
      <button disabled={!right}>{go}</button>
    </form>
  );
}

function LabelForm({ run }: { run: (name: string, value: string) => void }) {
  const [name, setName] = useState("");
  const [value, setValue] = useState("");
  return (
    <form className="inline" onSubmit={(event) => (event.preventDefault(), name.trim() !== "" && run(name.trim(), value === "" ? "true" : value))}>
      <label>
        Label <input value={name} autoFocus placeholder="quality" onChange={(event) => setName(event.target.value)} />
      </label>
      <label>
        Value <input value={value} placeholder="true" onChange={(event) => setValue(event.target.value)} />
      </label>
      <button disabled={name.trim() === ""}>Label</button>
      <span className="quiet">null takes the label away</span>
    </form>
  );
}

function FreezeForm({ ids, where, run }: { ids: readonly string[]; where: string; run: (asked: Parameters<typeof freeze>[0]) => void }) {
  const [name, setName] = useState("");
  const [note, setNote] = useState("");
  const [channel, setChannel] = useState("train");
  const [unrewarded, setUnrewarded] = useState(false);
  const own = whereOf(ids);
  const [of, setOf] = useState<"filter" | "chosen">(ids.length > 0 && own !== null ? "chosen" : "filter");
  const group = useId();
  const selected = of === "chosen" ? own : where;
  return (
    <form
      className="freeze"
      onSubmit={(event) => {
        event.preventDefault();
        if (name.trim() !== "" && selected !== null) run({ name: name.trim(), note: note.trim(), where: selected, channel: channel.trim() === "" ? null : channel.trim(), unrewarded });
      }}
    >
      <label>
        Name <input value={name} autoFocus placeholder="good-runs" onChange={(event) => setName(event.target.value)} />
      </label>
      <label>
        Channel <input value={channel} placeholder="all" onChange={(event) => setChannel(event.target.value)} />
      </label>
      <label>
        Note <input value={note} onChange={(event) => setNote(event.target.value)} />
      </label>
      <label>
        <input type="checkbox" checked={unrewarded} onChange={(event) => setUnrewarded(event.target.checked)} /> also without a reward
      </label>
      <fieldset>
        <legend>Of</legend>
        <label>
          <input type="radio" name={group} checked={of === "filter"} onChange={() => setOf("filter")} /> all that match {where === "" ? "no filter" : <code>{visible(where)}</code>}
        </label>
        <label>
          <input type="radio" name={group} disabled={ids.length === 0 || own === null} checked={of === "chosen"} onChange={() => setOf("chosen")} /> the {count(ids.length)} chosen
          {own === null && " (too many to name: choose by a filter)"}
        </label>
      </fieldset>
      <button disabled={name.trim() === ""}>Freeze</button>
      <span className="quiet">Ready ones that are not excluded are taken.</span>
    </form>
  );
}

/** Hand a file to the browser's downloads. */
function download(blob: Blob, name: string) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  window.setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}
