import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";

import { call, get, type Page, type Schemas } from "../api/client";
import { visible } from "../format";
import { Problem } from "./problem";
import { useKeys } from "./use-keys";
import type { Undo } from "./use-undo";

type Feedback = Schemas["Feedback"];
export type Target = { trajectory_id: string } | { step_id: string };

/** Labels of one target by one person: the server's schemes with keys 1 to 9, and any other by its name. */
export function LabelForm({ target, by, undo }: { target: Target; by: string; undo: Undo }) {
  const client = useQueryClient();
  const [name, setName] = useState("");
  const [value, setValue] = useState("");
  const schemes = useQuery({ queryKey: ["label-schemes"], staleTime: Infinity, queryFn: ({ signal }) => get<Schemas["LabelSchemes"]>("label-schemes", {}, signal) });
  const key = ["labels-of", target, by];
  const ofMine = {
    queryKey: key,
    queryFn: async ({ signal }: { signal: AbortSignal }): Promise<Record<string, unknown>> => {
      const page = await get<Page<Feedback>>("feedback", { ...target, kind: "label", source: by, limit: 1000 }, signal);
      return Object.fromEntries(page.items.map((each) => [each.name ?? "", each.value]));
    },
  };
  const mine = useQuery(ofMine);
  const said = mine.data ?? {};
  const send = (label: string, to: unknown) => call("POST", "feedback", { body: { kind: "label", ...target, name: label, value: to, source: by } });
  const set = useMutation({
    scope: undo.scope,
    mutationFn: async ({ label, choose }: { label: string; choose: (before: unknown) => unknown }) => {
      // A key may be pressed before what one said so far has come.
      const before = (await client.fetchQuery({ ...ofMine, staleTime: Infinity }))[label] ?? null;
      const to = choose(before);
      await send(label, to);
      return { before, to };
    },
    onSuccess: ({ before, to }, { label }) => {
      const back = async () => {
        await send(label, before);
        await client.invalidateQueries({ queryKey: key });
      };
      undo.push({ says: to === null ? `Took away the label ${label}` : `Labelled ${label}: ${String(to)}`, undo: back });
      return client.invalidateQueries({ queryKey: key });
    },
  });
  const offered = (schemes.data?.items ?? []).flatMap((scheme) => valuesIn(scheme).map((each) => ({ label: scheme.name, to: each })));
  const toggle = (label: string, to: unknown) => set.mutate({ label, choose: (before) => (before === to ? null : to) });
  useKeys(Object.fromEntries(offered.slice(0, 9).map((each, place) => [String(place + 1), () => toggle(each.label, each.to)])));
  const others = Object.entries(said).filter(([label, each]) => each != null && !offered.some((one) => one.label === label));
  let place = 0;
  return (
    <div className="labels" role="group" aria-label="Labels">
      {schemes.isError && <Problem error={schemes.error} />}
      {(mine.isError || set.isError) && <Problem error={mine.error ?? set.error} />}
      {(schemes.data?.items ?? []).map((scheme) => (
        <div key={scheme.name} className="scheme" title={visible(scheme.says ?? "")}>
          <span className="quiet">{visible(scheme.name)}</span>
          {valuesIn(scheme).map((each) => {
            place += 1;
            return (
              <button key={each} type="button" aria-pressed={said[scheme.name] === each} onClick={() => toggle(scheme.name, each)}>
                {visible(each)} {place <= 9 && <kbd>{place}</kbd>}
              </button>
            );
          })}
        </div>
      ))}
      <form
        className="scheme"
        onSubmit={(event) => {
          event.preventDefault();
          const to = valueOf(value);
          set.mutate({ label: name.trim(), choose: () => to }, { onSuccess: () => setValue((now) => (now === value ? "" : now)) });
        }}
      >
        {others.map(([label, each]) => (
          <button key={label} type="button" aria-pressed title="Take it away" onClick={() => set.mutate({ label, choose: () => null })}>
            {visible(`${label}: ${JSON.stringify(each)}`)}
          </button>
        ))}
        <input aria-label="Name of another label" placeholder="another label" value={name} onChange={(event) => setName(event.target.value)} />
        <input aria-label="Its value" placeholder="value" value={value} onChange={(event) => setValue(event.target.value)} />
        <button disabled={name.trim() === "" || value.trim() === "" || set.isPending}>Label</button>
      </form>
    </div>
  );
}

/** The document of the API does not say what its values are: texts. */
const valuesIn = (scheme: Schemas["LabelScheme"]): string[] => (scheme.values ?? []) as string[];

/** JSON where it is some, else a text. */
function valueOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text.trim();
  }
}
