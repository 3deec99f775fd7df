import { useMutation } from "@tanstack/react-query";
import { useState } from "react";

import { call, type Schemas } from "../api/client";
import { needs, useScopes } from "../api/scopes";
import { bytes, count, counted } from "../format";
import { Facts } from "./facts";
import { Problem } from "./problem";

type Collection = Schemas["Collection"];
type Limits = { days: string; lag: string; steps: string; gigabytes: string; channels: string; waiting: boolean };
const NONE: Limits = { days: "", lag: "", steps: "", gigabytes: "", channels: "", waiting: false };

/** What would go under limits, and letting it go. What a version pins, a lease holds or a consumer waits for stays. */
export function Retention() {
  const { admin, known } = useScopes();
  const [limits, setLimits] = useState(NONE);
  // What was tried is what may be taken: another limit is tried again first.
  const [tried, setTried] = useState<Limits | null>(null);
  const run = useMutation({
    mutationFn: ({ dry, of }: { dry: boolean; of: Limits }) => call<Collection>("POST", "pool/retain", { body: { ...bodyOf(of), dry_run: dry } }),
    onSuccess: (_, { dry, of }) => setTried(dry ? of : null),
  });
  if (known && !admin) return <p className="empty">{needs("admin", "Retention")} <code>agentworld pool gc --dry-run</code> tells the same beside the pool.</p>;
  const field = (name: keyof Omit<Limits, "waiting">) => ({
    value: limits[name],
    onChange: (event: React.ChangeEvent<HTMLInputElement>) => setLimits({ ...limits, [name]: event.target.value }),
  });
  const same = tried !== null && JSON.stringify(tried) === JSON.stringify(limits);
  return (
    <>
      <p className="quiet">Nothing goes by itself from here. Try limits, look at what would go, then let it go. Trajectories go that any limit names; without any, only what nothing refers to any more.</p>
      <form
        className="form"
        onSubmit={(event) => {
          event.preventDefault();
          run.mutate({ dry: true, of: limits });
        }}
      >
        <label>Ended longer ago than, days<input type="number" min={0} step="any" {...field("days")} /></label>
        <label>Behind the policy by versions<input type="number" min={0} {...field("lag")} /></label>
        <label>Most steps in the pool<input type="number" min={0} {...field("steps")} /></label>
        <label>Most gigabytes<input type="number" min={0} step="any" {...field("gigabytes")} /></label>
        <label>Channels, with commas<input placeholder="all" {...field("channels")} /></label>
        <label className="check">
          <input type="checkbox" checked={limits.waiting} onChange={(event) => setLimits({ ...limits, waiting: event.target.checked })} /> also what a consumer still waits for
        </label>
        <button disabled={run.isPending}>Try</button>
        <button type="button" className="bad" disabled={!same || run.isPending} title={same ? "" : "Try it first"} onClick={() => run.mutate({ dry: false, of: limits })}>
          Let it go for good
        </button>
      </form>
      {run.isError && <Problem error={run.error} />}
      {run.data !== undefined && <Taken found={run.data} />}
    </>
  );
}

function Taken({ found }: { found: Collection }) {
  return (
    <div role="status">
      <p>
        <strong>{found.dry_run ? "Nothing was taken. This would go:" : "This is gone:"}</strong>
      </p>
      <Facts
        items={[
          ["Trajectories", `${count(found.trajectories ?? 0)} with ${counted(found.steps ?? 0, "step", "steps")}`],
          ["Content that only they had", `${count(found.token_blocks ?? 0)} blocks of tokens, ${count(found.message_nodes ?? 0)} messages, ${count(found.tool_sets ?? 0)} sets of tools`],
          ["Media", `${count(found.media ?? 0)}, ${bytes(found.media_bytes ?? 0)}`],
          ["Named and kept", `${count(found.kept_pinned ?? 0)} pinned by versions, ${count(found.kept_leased ?? 0)} leased, ${count(found.kept_waiting ?? 0)} that consumers wait for`],
        ]}
      />
    </div>
  );
}

function bodyOf(limits: Limits) {
  const number = (text: string, by = 1) => (text === "" ? null : Number(text) * by);
  const channels = limits.channels.split(",").map((each) => each.trim()).filter((each) => each !== "");
  return {
    max_age: number(limits.days, 86_400),
    max_policy_lag: number(limits.lag),
    max_steps: number(limits.steps),
    max_bytes: limits.gigabytes === "" ? null : Math.round(Number(limits.gigabytes) * 1e9),
    channels: channels.length === 0 ? null : channels,
    include_waiting: limits.waiting,
  };
}
