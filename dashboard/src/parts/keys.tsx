import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";

import { call, get, type Page, type Schemas } from "../api/client";
import { needs, useScopes } from "../api/scopes";
import { visible } from "../format";
import { DataTable } from "./data-table";
import { Problem } from "./problem";
import { When } from "./when";

type ApiKey = Schemas["ApiKey"];
const SCOPES = ["read", "write", "feedback", "lease", "admin"] as const;
const SAYS: Record<string, string> = {
  read: "looks at everything",
  write: "sends steps, rewards and labels, calls models",
  feedback: "gives feedback",
  lease: "takes batches, publishes policies",
  admin: "everything, keys and deletion too",
};

/** Keys: listed, made and ended, for who has the scope admin. A secret is shown once, when the key is made. */
export function Keys() {
  const { admin, known } = useScopes();
  const client = useQueryClient();
  const keys = useQuery({ queryKey: ["keys"], enabled: admin, queryFn: ({ signal }) => get<Page<ApiKey>>("keys", {}, signal) });
  const revoke = useMutation({
    mutationFn: (key: ApiKey) => call<ApiKey>("POST", `keys/${encodeURIComponent(key.key_id)}/revoke`, { body: {} }),
    onSuccess: () => client.invalidateQueries({ queryKey: ["keys"] }),
  });
  if (known && !admin) return <p className="empty">{needs("admin", "Looking at keys")}</p>;
  const now = Date.now() / 1000;
  const state = (key: ApiKey) => (key.revoked_at != null ? "revoked" : key.expires_at != null && key.expires_at < now ? "expired" : "holds");
  return (
    <>
      <NewKey />
      {keys.isError && <Problem error={keys.error} again={() => void keys.refetch()} />}
      {revoke.isError && <Problem error={revoke.error} />}
      {keys.isSuccess && (
        <DataTable
          label="Keys"
          columns={["Name", "Id", "Scopes", "Bound to", "Made", "Ends", "State", "Action"]}
          lines={keys.data.items.map((key) => ({
            key: key.key_id,
            cells: [
              visible(key.name),
              <code key="id">{key.key_id}</code>,
              key.scopes.join(", "),
              visible(key.trajectory_id ?? (key.channel == null ? "nothing" : `channel ${key.channel}`)),
              <When key="made" at={key.created_at} />,
              key.expires_at == null ? "never" : <When key="ends" at={key.expires_at} />,
              <span key="state" className={state(key) === "holds" ? "good" : "quiet"}>{state(key)}</span>,
              state(key) === "holds" ? <Revoke key="revoke" name={key.name} busy={revoke.isPending} act={() => revoke.mutate(key)} /> : "",
            ],
          }))}
          empty="No key was made yet. Where this server is reached from other machines it asks for one."
        />
      )}
    </>
  );
}

/** Asks once more, as it is for good. */
function Revoke({ name, busy, act }: { name: string; busy: boolean; act: () => void }) {
  const [sure, setSure] = useState(false);
  if (!sure) return <button type="button" onClick={() => setSure(true)} aria-label={`Revoke ${visible(name)}`}>Revoke</button>;
  return (
    <span className="inline">
      <button type="button" className="bad" disabled={busy} autoFocus onClick={act}>End it for good</button>
      <button type="button" onClick={() => setSure(false)}>Keep</button>
    </span>
  );
}

function NewKey() {
  const client = useQueryClient();
  const [name, setName] = useState("");
  const [scopes, setScopes] = useState<string[]>(["read"]);
  const [channel, setChannel] = useState("");
  const [days, setDays] = useState("");
  const make = useMutation({
    mutationFn: () =>
      call<Schemas["IssuedKey"]>("POST", "keys", {
        body: { name: name.trim(), scopes, channel: channel.trim() === "" ? null : channel.trim(), expires_in: days === "" ? null : Number(days) * 86_400 },
      }),
    onSuccess: () => {
      setName("");
      void client.invalidateQueries({ queryKey: ["keys"] });
    },
  });
  const toggle = (scope: string) => setScopes((before) => (before.includes(scope) ? before.filter((each) => each !== scope) : [...before, scope]));
  return (
    <>
      <form
        className="form"
        onSubmit={(event) => {
          event.preventDefault();
          make.mutate();
        }}
      >
        <label>
          Name
          <input required maxLength={256} value={name} placeholder="who uses it" onChange={(event) => setName(event.target.value)} />
        </label>
        <fieldset>
          <legend className="quiet">May</legend>
          {SCOPES.map((scope) => (
            <label key={scope} className="inline" title={SAYS[scope]}>
              <input type="checkbox" checked={scopes.includes(scope)} onChange={() => toggle(scope)} /> {scope}
            </label>
          ))}
        </fieldset>
        <label>
          Channel
          <input value={channel} placeholder="all" onChange={(event) => setChannel(event.target.value)} />
        </label>
        <label>
          Days
          <input type="number" min={0.01} step="any" value={days} placeholder="for ever" onChange={(event) => setDays(event.target.value)} />
        </label>
        <button disabled={scopes.length === 0 || name.trim() === "" || make.isPending}>Make a key</button>
      </form>
      {make.isError && <Problem error={make.error} />}
      {make.data !== undefined && (
        <div className="secret" role="status">
          <strong>The key of {visible(make.data.key.name)}.</strong> It is shown this once, and kept nowhere: copy it now.
          <code>{make.data.secret}</code>
          <div className="bar">
            <button type="button" onClick={() => void navigator.clipboard?.writeText(make.data.secret)}>Copy</button>
            <button type="button" onClick={() => make.reset()}>Done</button>
          </div>
        </div>
      )}
    </>
  );
}
