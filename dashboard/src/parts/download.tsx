import { useMutation, useQuery } from "@tanstack/react-query";
import { useState } from "react";

import { addressOf, errorOf, get, type Schemas } from "../api/client";
import { visible } from "../format";
import { Problem } from "./problem";

/** One split in a layout as a file, which the browser saves as it comes. */
export function Download({ version }: { version: Schemas["DatasetVersion"] }) {
  const layouts = useQuery({ queryKey: ["dataset-layouts"], staleTime: Infinity, queryFn: ({ signal }) => get<Schemas["DatasetLayouts"]>("dataset-layouts", {}, signal) });
  const splits = Object.keys(version.splits ?? {});
  const [name, setName] = useState("sft");
  const [split, setSplit] = useState(splits[0] ?? "train");
  const [style, setStyle] = useState("");
  const [truncated, setTruncated] = useState("drop");
  const chosen = layouts.data?.items.find((each) => each.name === name);
  const address = addressOf(`datasets/${encodeURIComponent(version.version)}/export`, { layout: name, split, style, truncated: chosen?.drops_truncated ? truncated : null });
  const save = useMutation({
    // Whether it can be made is asked first, as what is saved as a file could not tell what is wrong.
    mutationFn: async () => {
      const asking = new AbortController();
      const response = await fetch(address, { signal: asking.signal });
      if (!response.ok) throw errorOf(response.status, await response.text());
      asking.abort();
      const link = document.createElement("a");
      link.href = address;
      link.download = "";
      link.click();
    },
  });
  if (layouts.isError) return <Problem error={layouts.error} again={() => void layouts.refetch()} />;
  return (
    <>
      <form
        className="form"
        onSubmit={(event) => {
          event.preventDefault();
          save.mutate();
        }}
      >
        <label>
          Layout
          <select value={name} onChange={(event) => { setName(event.target.value); setStyle(""); }}>
            {(layouts.data?.items ?? []).map((each) => (
              <option key={each.name}>{each.name}</option>
            ))}
          </select>
        </label>
        {(chosen?.styles.length ?? 0) > 0 && (
          <label>
            Style
            <select value={style} onChange={(event) => setStyle(event.target.value)}>
              <option value="">its own</option>
              {chosen!.styles.map((each) => (
                <option key={each}>{each}</option>
              ))}
            </select>
          </label>
        )}
        <label>
          Split
          <select value={split} onChange={(event) => setSplit(event.target.value)}>
            {splits.map((each) => (
              <option key={each} value={each}>{visible(each)}</option>
            ))}
          </select>
        </label>
        {chosen?.drops_truncated && (
          <label>
            Truncated, by the limit of tokens
            <select value={truncated} onChange={(event) => setTruncated(event.target.value)}>
              <option>drop</option>
              <option>keep</option>
            </select>
          </label>
        )}
        <button disabled={save.isPending || splits.length === 0}>Save as JSONL</button>
      </form>
      {chosen !== undefined && <p className="quiet">{chosen.says}</p>}
      {save.isError && <Problem error={save.error} />}
      <p className="quiet">
        Parquet with a card that the Hugging Face loader reads, images, and all options come from{" "}
        <code>agentworld dataset export {visible(version.version.split("@")[0]!)} --format {name} --out FOLDER</code>.
      </p>
    </>
  );
}
