import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { Link, useLocation, useSearchParams } from "wouter";

import { call, get, type Page, type Schemas } from "../api/client";
import { needs, useScopes } from "../api/scopes";
import { count, visible } from "../format";
import { DataTable } from "../parts/data-table";
import { Problem } from "../parts/problem";
import { When } from "../parts/when";

type Version = Schemas["DatasetVersion"];

/** Versions of datasets, the newest first, and freezing another one. */
export function Datasets() {
  const versions = useQuery({
    queryKey: ["live", "datasets"],
    queryFn: ({ signal }) => get<Page<Version>>("datasets", { limit: 100 }, signal),
  });
  return (
    <>
      <h1>Datasets</h1>
      <Create versions={versions.data?.items ?? []} />
      {versions.isPending && <p className="quiet">Loading</p>}
      {versions.isError && <Problem error={versions.error} again={() => void versions.refetch()} />}
      {versions.isSuccess && versions.data.items.length === 0 && (
        <p className="empty">
          No dataset is frozen yet. Freeze what matches a filter above, or with <code>agentworld dataset create NAME --where 'ready' --split task</code>. A version never changes, and says where each row comes from.
        </p>
      )}
      {versions.isSuccess && versions.data.items.length > 0 && (
        <DataTable
          label="Versions"
          columns={["Version", { name: "Rows", number: true }, { name: "Steps", number: true }, "Splits", "Selected", "Goes on from", "State", "Frozen"]}
          lines={versions.data.items.map((each) => ({
            key: each.version,
            cells: [
              <Link key="version" href={`/datasets/${encodeURIComponent(each.version)}`}>{short(each.version)}</Link>,
              count(each.rows ?? 0),
              count(each.steps ?? 0),
              visible(Object.entries(each.splits ?? {}).map(([name, split]) => `${name} ${count(split.rows ?? 0)}`).join(", ")),
              <code key="where">{visible(each.selection.where ?? "all that is ready")}</code>,
              (each.parents ?? []).map((parent) => short(parent)).join(", ") || "-",
              each.state,
              <When key="at" at={each.created_at} />,
            ],
          }))}
        />
      )}
    </>
  );
}

/** NAME@ and the first of its digits. */
export const short = (version: string): string => {
  const at = version.lastIndexOf("@");
  return visible(at < 0 ? version : version.slice(0, at + 9));
};

function Create({ versions }: { versions: readonly Version[] }) {
  const { write, known } = useScopes();
  const client = useQueryClient();
  const [asked] = useSearchParams();
  const [, go] = useLocation();
  const given = asked.get("where");
  const [name, setName] = useState("");
  const [where, setWhere] = useState(given ?? "");
  const [channel, setChannel] = useState("train");
  const [test, setTest] = useState("10");
  const [by, setBy] = useState("task");
  const [parent, setParent] = useState("");
  const [note, setNote] = useState("");
  const [unrewarded, setUnrewarded] = useState(false);
  const held = Math.max(0, Math.min(99, Number(test) || 0)) / 100;
  const make = useMutation({
    mutationFn: () =>
      call<Version>("POST", "datasets", {
        body: {
          name: name.trim(),
          note: note.trim() === "" ? null : note.trim(),
          parents: parent === "" ? [] : [parent],
          selection: {
            where: where.trim() === "" ? null : where.trim(),
            channel: channel.trim() === "" ? null : channel.trim(),
            unrewarded,
            splits: { fractions: held === 0 ? { train: 1 } : { train: 1 - held, test: held }, by },
          },
        },
      }),
    onSuccess: (version) => {
      void client.invalidateQueries({ queryKey: ["live", "datasets"] });
      go(`/datasets/${encodeURIComponent(version.version)}`);
    },
  });
  if (known && !write) return <p className="quiet">{needs("write", "Freezing a version")}</p>;
  return (
    <details open={given !== null}>
      <summary>Freeze a version</summary>
      <form
        className="form"
        onSubmit={(event) => {
          event.preventDefault();
          make.mutate();
        }}
      >
        <label>
          Name
          <input required value={name} placeholder="what it is called" onChange={(event) => setName(event.target.value)} />
        </label>
        <label className="grown">
          Where, of trajectories; empty: all that is ready
          <input value={where} spellCheck={false} placeholder="reward >= 0.5 and label.quality != 'bad'" onChange={(event) => setWhere(event.target.value)} />
        </label>
        <label>
          Channel
          <input value={channel} placeholder="all" onChange={(event) => setChannel(event.target.value)} />
        </label>
        <label>
          Held out, percent
          <input type="number" min={0} max={99} value={test} onChange={(event) => setTest(event.target.value)} />
        </label>
        <label>
          Kept together
          <select value={by} onChange={(event) => setBy(event.target.value)}>
            <option value="task">by task</option>
            <option value="group">by group</option>
            <option value="trajectory">each alone</option>
          </select>
        </label>
        <label>
          Goes on from
          <select value={parent} onChange={(event) => setParent(event.target.value)}>
            <option value="">nothing</option>
            {versions.map((each) => (
              <option key={each.version} value={each.version}>
                {short(each.version)}
              </option>
            ))}
          </select>
        </label>
        <label className="grown">
          Note
          <input value={note} onChange={(event) => setNote(event.target.value)} />
        </label>
        <label className="check">
          <input type="checkbox" checked={unrewarded} onChange={(event) => setUnrewarded(event.target.checked)} /> also without a reward
        </label>
        <button disabled={name.trim() === "" || make.isPending}>{make.isPending ? "Reading every step" : "Freeze"}</button>
      </form>
      {make.isError && <Problem error={make.error} />}
    </details>
  );
}
