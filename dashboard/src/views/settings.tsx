import { useQuery } from "@tanstack/react-query";

import { get, type Schemas } from "../api/client";
import { useScopes } from "../api/scopes";
import { bytes, count, counted, span, visible } from "../format";
import { DataTable } from "../parts/data-table";
import { Engines } from "../parts/engines";
import { Facts } from "../parts/facts";
import { Keys } from "../parts/keys";
import { Problem } from "../parts/problem";
import { Retention } from "../parts/retention";
import { Tabs } from "../parts/tabs";

type Server = Schemas["ServerStatus"];

/** The server and its pool as they are, and what a key with the scope admin may change of them. */
export function Settings() {
  return (
    <>
      <h1>Settings</h1>
      <Tabs
        label="Settings"
        tabs={[
          { id: "server", name: "Server", show: () => <ServerTab /> },
          { id: "keys", name: "Keys", show: () => <Keys /> },
          { id: "retention", name: "Retention", show: () => <Retention /> },
          { id: "labels", name: "Labels", show: () => <Labels /> },
        ]}
      />
    </>
  );
}

function ServerTab() {
  const scopes = useScopes();
  const server = useQuery({ queryKey: ["server"], queryFn: ({ signal }) => get<Server>("server", {}, signal), refetchInterval: 5_000, enabled: scopes.known && !scopes.bound });
  if (scopes.bound) return <p className="empty">A key that is bound to a channel or a trajectory sees nothing of the server. Sign in with one that is bound to nothing.</p>;
  if (server.isPending) return <p className="quiet">Loading</p>;
  if (server.isError) return <Problem error={server.error} again={() => void server.refetch()} />;
  const { data } = server;
  const { pool } = data;
  return (
    <>
      <Facts
        items={[
          ["Version", data.version],
          ["Workers", count(data.workers)],
          ["Keys", data.keys_required ? "required" : "not required: this address is reached from this machine alone"],
          ["Agents call", data.gateway_url ?? "the address that they asked"],
          ["Silent trajectories end after", data.idle_seconds === 0 ? "never" : span(data.idle_seconds)],
        ]}
      />
      <h2>Pool</h2>
      {pool.error != null && <p className="problem" role="alert">It cannot be written: {visible(pool.error)}</p>}
      <Facts
        items={[
          ["Address", <code key="address">{visible(pool.url)}</code>],
          ["Kind", pool.kind],
          ["State", pool.error == null ? "takes writes" : "takes no writes"],
          ["On disk", pool.bytes == null ? "not a file of this machine" : bytes(pool.bytes)],
          ["Free there", pool.disk_free_bytes == null || pool.disk_bytes == null ? "-" : `${bytes(pool.disk_free_bytes)} of ${bytes(pool.disk_bytes)}`],
        ]}
      />
      <h2>Models and engines</h2>
      <p className="quiet">Addresses come from the server's configuration and are changed there alone.</p>
      <Engines models={data.models} />
      {data.rewards != null && (
        <>
          <h2>Evaluators</h2>
          <Evaluators rewards={data.rewards} />
        </>
      )}
    </>
  );
}

type Rewards = { begun?: boolean; error?: string; behind?: number; stage?: string; evaluations?: Record<string, Record<string, number>>; resting?: Record<string, string> };

function Evaluators({ rewards }: { rewards: Rewards }) {
  if (rewards.error !== undefined) return <p className="problem">{visible(rewards.error)}</p>;
  if (!rewards.begun) return <p className="quiet">They have not begun yet.</p>;
  const lines = Object.entries(rewards.evaluations ?? {}).map(([name, states]) => ({
    key: name,
    cells: [visible(name), ...["evaluated", "cached", "failed", "skipped"].map((state) => count(states[state] ?? 0)), rewards.resting?.[name] === undefined ? "works" : `rests: ${visible(rewards.resting[name])}`],
  }));
  const numbers = ["Evaluated", "Cached", "Failed", "Skipped"].map((name) => ({ name, number: true }));
  return (
    <>
      <p className="quiet">{counted(rewards.behind ?? 0, "event", "events")} behind.</p>
      <DataTable label="Evaluators" columns={["Evaluator", ...numbers, "State"]} lines={lines} empty="None has judged anything yet." />
    </>
  );
}

function Labels() {
  const schemes = useQuery({ queryKey: ["label-schemes"], queryFn: ({ signal }) => get<Schemas["LabelSchemes"]>("label-schemes", {}, signal) });
  if (schemes.isError) return <Problem error={schemes.error} again={() => void schemes.refetch()} />;
  return (
    <>
      <p className="quiet">What reviewers are offered. It is the same for all of them, and stands in the server's configuration:</p>
      <pre>
        <code>{'[[labels]]\nname = "quality"\nvalues = ["good", "usable", "bad"]\nsays = "How well the task was done"'}</code>
      </pre>
      <DataTable
        label="Label schemes"
        columns={["Label", "Values", "About"]}
        lines={(schemes.data?.items ?? []).map((each) => ({ key: each.name, cells: [<code key="name">label.{visible(each.name)}</code>, visible((each.values ?? []).join(", ")), visible(each.says ?? "")] }))}
        empty="There are none: any label may still be typed in a review."
      />
    </>
  );
}
