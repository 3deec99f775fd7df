import { useInfiniteQuery, useMutation, useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Link, useLocation } from "wouter";

import { call, get, type Page, type Schemas } from "../api/client";
import { needs, useScopes } from "../api/scopes";
import { count, decimal, visible } from "../format";
import { DataTable } from "../parts/data-table";
import { Difference } from "../parts/difference";
import { Download } from "../parts/download";
import { Facts } from "../parts/facts";
import { Lineage } from "../parts/lineage";
import { Problem } from "../parts/problem";
import { Tabs } from "../parts/tabs";
import { When } from "../parts/when";
import { short } from "./datasets";

type Version = Schemas["DatasetVersion"];
const PAGE = 100;

/** One version: what it is, where it comes from, its rows, how it differs from others, and getting it as files. */
export function DatasetView({ version }: { version: string }) {
  const path = `datasets/${encodeURIComponent(version)}`;
  const found = useQuery({ queryKey: ["dataset", version], queryFn: ({ signal }) => get<Version>(path, {}, signal) });
  if (found.isPending) return <p className="quiet">Loading</p>;
  if (found.isLoadingError) return <Problem error={found.error} again={() => void found.refetch()} />;
  const { data } = found;
  return (
    <>
      <p>
        <Link href="/datasets">Datasets</Link>
      </p>
      <h1>{short(data.version)}</h1>
      {found.isError && <Problem error={found.error} again={() => void found.refetch()} />}
      <Tabs
        label="Dataset"
        tabs={[
          { id: "card", name: "Card", show: () => <Card version={data} /> },
          { id: "rows", name: "Rows", show: () => <Rows path={path} splits={Object.keys(data.splits ?? {})} /> },
          { id: "lineage", name: "Lineage", show: () => <Lineage version={data} /> },
          { id: "diff", name: "Compare", show: () => <Difference version={data} /> },
          { id: "export", name: "Export", show: () => <Download version={data} /> },
        ]}
      />
    </>
  );
}

function Card({ version }: { version: Version }) {
  const { selection } = version;
  return (
    <>
      {version.note != null && <p>{visible(version.note)}</p>}
      <Facts
        items={[
          ["Version", <code key="version">{visible(version.version)}</code>],
          ["Frozen", <span key="at"><When at={version.created_at} />{version.created_by == null ? "" : ` by ${visible(version.created_by)}`}</span>],
          ["Selected", `${selection.unit ?? "trajectory"} of ${selection.channel == null ? "all channels" : `channel ${visible(selection.channel)}`}${selection.unrewarded ? ", also without a reward" : ""}`],
          ["Where", <code key="where">{visible(selection.where ?? "all that is ready")}</code>],
          ["Divided", `by ${selection.splits?.by ?? "task"}, seed ${selection.splits?.seed ?? 0}${selection.splits?.near_duplicates == null ? "" : `, near duplicates (${selection.splits.near_duplicates}) together`}`],
          ["Goes on from", <Parents key="parents" names={version.parents ?? []} />],
          ["Rules in force", (version.policies ?? []).map((each) => `${visible(each.name)} (${each.digest.slice(0, 8)}) for ${visible(each.channel)}`).join(", ") || "none"],
          ["Made with", `AgentWorld ${version.code_version ?? ""}, format ${version.format ?? 1}`],
          ["Manifest", <code key="manifest">{version.manifest_digest}</code>],
        ]}
      />
      <DataTable
        label="Splits"
        columns={["Split", { name: "Rows", number: true }, { name: "Share", number: true }, { name: "Wanted", number: true }, { name: "Steps", number: true }, { name: "Tokens of replies", number: true }]}
        lines={Object.entries(version.splits ?? {}).map(([name, each]) => ({
          key: name,
          cells: [visible(name), count(each.rows ?? 0), percent((each.rows ?? 0) / Math.max(1, version.rows ?? 0)), selection.splits?.fractions?.[name] === undefined ? "-" : percent(selection.splits.fractions[name]), count(each.steps ?? 0), count(each.response_tokens ?? 0)],
        }))}
        empty="It has no rows."
      />
      <div className="bar">
        <Link href={`/optimization?dataset=${encodeURIComponent(version.version)}`}>Its token tree</Link>
        <Verify version={version.version} />
        <Delete version={version.version} />
      </div>
    </>
  );
}

const percent = (share: number): string => `${(share * 100).toFixed(1)}%`;

function Parents({ names }: { names: readonly string[] }) {
  if (names.length === 0) return "no other version";
  return names.map((name) => (
    <span key={name}>
      <Link href={`/datasets/${encodeURIComponent(name)}`}>{short(name)}</Link>{" "}
    </span>
  ));
}

/** Every digest is computed again of what the pool holds now. */
function Verify({ version }: { version: string }) {
  const verify = useMutation({ mutationFn: () => call<Schemas["Verification"]>("POST", `datasets/${encodeURIComponent(version)}/verify`, { body: {} }) });
  const found = verify.data;
  const parts = found === undefined ? [] : (["changed", "missing", "deleted", "reduced"] as const).filter((name) => (found[name] ?? 0) > 0).map((name) => `${count(found[name]!)} ${name}`);
  const wrong = [...parts, ...(found?.manifest ?? [])];
  return (
    <>
      <button type="button" disabled={verify.isPending} onClick={() => verify.mutate()}>
        {verify.isPending ? "Computing every digest" : "Verify"}
      </button>
      {verify.isError && <Problem error={verify.error} />}
      {found !== undefined && (
        <span role="status" className={wrong.length === 0 ? "good" : "bad"}>
          {count(found.ok ?? 0)} of {count(found.rows ?? 0)} rows are what they were
          {wrong.length === 0 ? "." : `: ${visible(wrong.join(", "))}.`}
          {(found.problems ?? []).slice(0, 10).map((row) => ` ${visible(row.trajectory_id)} ${row.state}`).join(";")}
        </span>
      )}
    </>
  );
}

function Delete({ version }: { version: string }) {
  const { admin, known } = useScopes();
  const [sure, setSure] = useState(false);
  const [, go] = useLocation();
  const remove = useMutation({ mutationFn: () => call("DELETE", `datasets/${encodeURIComponent(version)}`), onSuccess: () => go("/datasets") });
  if (!admin) return known ? <span className="quiet">{needs("admin", "Deleting a version")}</span> : null;
  if (!sure) return <button type="button" onClick={() => setSure(true)}>Delete</button>;
  return (
    <span className="inline">
      <button type="button" className="bad" autoFocus disabled={remove.isPending} onClick={() => remove.mutate()}>
        Delete this version for good; its trajectories stay
      </button>
      <button type="button" onClick={() => setSure(false)}>Keep</button>
      {remove.isError && <Problem error={remove.error} />}
    </span>
  );
}

function Rows({ path, splits }: { path: string; splits: readonly string[] }) {
  const [split, setSplit] = useState("");
  const rows = useInfiniteQuery({
    queryKey: ["dataset-rows", path, split],
    initialPageParam: "-1",
    queryFn: ({ pageParam, signal }) => get<Page<Schemas["DatasetRow"]>>(`${path}/rows`, { after: pageParam, limit: PAGE, split }, signal),
    getNextPageParam: (last) => last.next_cursor,
  });
  if (rows.isError) return <Problem error={rows.error} again={() => void rows.refetch()} />;
  const items = rows.data?.pages.flatMap((page) => page.items) ?? [];
  return (
    <>
      <div className="bar">
        <label className="inline">
          Split{" "}
          <select value={split} onChange={(event) => setSplit(event.target.value)}>
            <option value="">all</option>
            {splits.map((each) => (
              <option key={each} value={each}>{visible(each)}</option>
            ))}
          </select>
        </label>
      </div>
      <DataTable
        label="Rows"
        columns={[{ name: "Row", number: true }, "Trajectory", "Split", { name: "Steps", number: true }, { name: "Reward", number: true }, "Labels", "Digest"]}
        lines={items.map((row) => ({
          key: String(row.position),
          cells: [
            count(row.position),
            <Link key="id" href={`/trajectories/${encodeURIComponent(row.trajectory_id)}`}>{visible(row.trajectory_id)}</Link>,
            visible(row.split ?? "train"),
            count(row.steps?.length ?? 0),
            row.reward == null ? "-" : decimal(row.reward),
            visible(Object.entries(row.labels ?? {}).map(([name, value]) => `${name} ${JSON.stringify(value)}`).join(", ").slice(0, 200)),
            <code key="digest">{(row.digest ?? "").slice(0, 8)}</code>,
          ],
        }))}
        empty={rows.isPending ? "Loading" : "There are no rows here."}
      />
      {rows.hasNextPage && (
        <button type="button" disabled={rows.isFetching} onClick={() => void rows.fetchNextPage()}>
          Show more
        </button>
      )}
    </>
  );
}
