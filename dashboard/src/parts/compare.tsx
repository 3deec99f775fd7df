import { useMutation, useQuery } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { Link, useSearchParams } from "wouter";

import { call, get, type Page, type Schemas } from "../api/client";
import { needs, useScopes } from "../api/scopes";
import { count, counted, decimal, visible } from "../format";
import { pairsOf, siblingsOf } from "../pairs";
import { useReviewer } from "../reviewer";
import { lastWords } from "../said";
import { MessageView } from "./message";
import { Problem } from "./problem";
import { UndoLine } from "./undo-line";
import { useKeys } from "./use-keys";
import { useUndo } from "./use-undo";
import { When } from "./when";
import { YouAre } from "./you-are";

type Step = Schemas["Step"];
type Trajectory = Schemas["Trajectory"];
type Side = { id: string; name: string; trajectory: string; steps: Step[]; reward: number | null };
const MOST_STEPS = 100;
const MOST_MEMBERS = 16;

/** Rollouts of a group, or branches of a trajectory, side by side: which of two is better is a comparison. */
export function Compare() {
  const [asked, setAsked] = useSearchParams();
  const group = asked.get("group");
  const trajectory = asked.get("trajectory");
  const [first, second] = [asked.get("first"), asked.get("second")];
  const go = (kind: string, value: string) => setAsked(new URLSearchParams({ tab: "compare", [kind]: value }));
  return (
    <>
      <Choose key={asked.toString()} kind={trajectory === null ? "group" : "trajectory"} value={trajectory ?? group ?? ""} go={go} />
      {first !== null && second !== null && <OfTwo key={`${first} ${second}`} first={first} second={second} />}
      {first === null && group === null && trajectory === null && <Groups go={(id) => go("group", id)} />}
      {group !== null && trajectory === null && <OfGroup key={group} group={group} own={asked.get("own")} />}
      {trajectory !== null && <OfTrajectory key={trajectory} trajectory={trajectory} />}
    </>
  );
}

function Choose({ kind, value, go }: { kind: string; value: string; go: (kind: string, value: string) => void }) {
  const [chosen, setChosen] = useState(kind);
  const [text, setText] = useState(value);
  return (
    <form
      role="search"
      onSubmit={(event) => {
        event.preventDefault();
        if (text.trim() !== "") go(chosen, text.trim());
      }}
    >
      <select aria-label="What to compare" value={chosen} onChange={(event) => setChosen(event.target.value)}>
        <option value="group">rollouts of group</option>
        <option value="trajectory">branches of trajectory</option>
      </select>
      <input type="search" aria-label="Its id" placeholder="its id" spellCheck={false} value={text} onChange={(event) => setText(event.target.value)} />
      <button>Compare</button>
    </form>
  );
}

function Groups({ go }: { go: (id: string) => void }) {
  const groups = useQuery({
    queryKey: ["live", "groups-to-compare"],
    queryFn: ({ signal }) => get<Page<Trajectory>>("trajectories", { where: "has group_id and complete", order: "newest", limit: 200 }, signal),
  });
  if (groups.isError) return <Problem error={groups.error} />;
  if (groups.isPending) return <p className="quiet">Loading</p>;
  const counts = new Map<string, number>();
  for (const each of groups.data.items) counts.set(each.group_id!, (counts.get(each.group_id!) ?? 0) + 1);
  const several = [...counts].filter(([, number]) => number > 1).slice(0, 20);
  if (several.length === 0) return <p className="empty">Nothing to compare yet: no group has two rollouts that have ended. Rollouts of one task are a group; branches of a trajectory can be compared by its id.</p>;
  return (
    <>
      <p className="quiet">Groups of the latest rollouts:</p>
      <ul className="members">
        {several.map(([id, number]) => (
          <li key={id}>
            <button type="button" onClick={() => go(id)}>
              {visible(id)}
            </button>{" "}
            <span className="quiet">{counted(number, "rollout", "rollouts")}</span>
          </li>
        ))}
      </ul>
    </>
  );
}

async function sideOf(each: Trajectory, signal: AbortSignal): Promise<Side> {
  const page = await get<Page<Step>>("steps", { trajectory_id: each.trajectory_id, limit: MOST_STEPS, include: "messages" }, signal);
  return { id: each.trajectory_id, name: each.rollout_index == null ? each.trajectory_id : `rollout ${each.rollout_index}`, trajectory: each.trajectory_id, steps: page.items, reward: each.reward ?? null };
}

/** Any two trajectories, as they were chosen in the list. */
function OfTwo({ first, second }: { first: string; second: string }) {
  const found = useQuery({
    queryKey: ["compare", "two", first, second],
    queryFn: ({ signal }) => Promise.all([first, second].map((id) => get<Trajectory>(`trajectories/${encodeURIComponent(id)}`, {}, signal))),
  });
  if (found.isLoadingError) return <Problem error={found.error} />;
  if (found.isPending) return <p className="quiet">Loading</p>;
  const [one, two] = found.data as [Trajectory, Trajectory];
  const together = one.group_id != null && one.group_id === two.group_id;
  const load = async (each: Trajectory, signal: AbortSignal) => ({ ...(await sideOf(each, signal)), ...(together ? {} : { name: each.trajectory_id }) });
  return (
    <>
      {found.isError && <Problem error={found.error} />}
      {!together && <p className="quiet">They are not of one group, so they may have answered different prompts: preferring one makes a pair for training all the same.</p>}
      <Pairs kind="trajectory" pairs={[[one, two]]} keyOf={(each) => each.trajectory_id} load={load} />
    </>
  );
}

function OfGroup({ group, own }: { group: string; own: string | null }) {
  const members = useQuery({
    queryKey: ["compare", "group", group],
    queryFn: ({ signal }) => get<Page<Trajectory>>("trajectories", { group_id: group, where: "not open", limit: MOST_MEMBERS }, signal),
  });
  if (members.isLoadingError) return <Problem error={members.error} />;
  if (members.isPending) return <p className="quiet">Loading</p>;
  if (members.data.items.length < 2) return <p className="empty">This group has {counted(members.data.items.length, "rollout that has", "rollouts that have")} ended: two are needed.</p>;
  // From a trajectory on, it is compared with each of the others, and they with one another after that.
  const pairs = pairsOf([...members.data.items].sort((one, two) => Number(two.trajectory_id === own) - Number(one.trajectory_id === own)));
  const ranked = own === null ? pairs : [...pairs].sort((one, two) => Number(two[0].trajectory_id === own) - Number(one[0].trajectory_id === own));
  return (
    <>
      {members.isError && <Problem error={members.error} />}
      <Pairs kind="trajectory" pairs={ranked} keyOf={(each) => each.trajectory_id} load={sideOf} />
    </>
  );
}

function OfTrajectory({ trajectory }: { trajectory: string }) {
  const steps = useQuery({
    queryKey: ["compare", "trajectory", trajectory],
    queryFn: ({ signal }) => get<Page<Step>>("steps", { trajectory_id: trajectory, limit: 1000 }, signal),
  });
  if (steps.isLoadingError) return <Problem error={steps.error} />;
  if (steps.isPending) return <p className="quiet">Loading</p>;
  const pairs = siblingsOf(steps.data.items).flatMap((siblings) => pairsOf(siblings));
  if (pairs.length === 0) return <p className="empty">No prompt was answered twice in this trajectory, so there is nothing to compare.</p>;
  const load = async (each: Step, signal: AbortSignal): Promise<Side> => {
    const whole = await get<Step>(`steps/${encodeURIComponent(each.step_id)}`, { include: "messages" }, signal);
    return { id: each.step_id, name: `step ${each.step_index ?? ""}`, trajectory, steps: [whole], reward: each.reward ?? null };
  };
  return (
    <>
      {steps.isError && <Problem error={steps.error} />}
      <Pairs kind="step" pairs={pairs} keyOf={(each) => each.step_id} load={load} />
    </>
  );
}

type PairsProps<T> = { kind: "trajectory" | "step"; pairs: [T, T][]; keyOf: (each: T) => string; load: (each: T, signal: AbortSignal) => Promise<Side> };

function Pairs<T>({ kind, pairs, keyOf, load }: PairsProps<T>) {
  const { write, known } = useScopes();
  const [by] = useReviewer();
  const [at, setAt] = useState(0);
  // By the ids of a pair: the preferred one; null for neither.
  const [said, setSaid] = useState<Record<string, string | null>>({});
  const [first, second] = pairs[at]!;
  const [a, b] = [keyOf(first), keyOf(second)];
  const sides = useQuery({ queryKey: ["compare-sides", a, b], queryFn: ({ signal }) => Promise.all([load(first, signal), load(second, signal)]) });
  const undo = useUndo(() => undefined);
  const send = (better: string, worse: string, value: number | null) =>
    call("POST", "feedback", { body: { kind: "comparison", [`${kind}_id`]: better, other_id: worse, value, source: by.trim() } });
  const prefer = useMutation({
    scope: undo.scope,
    mutationFn: async ({ better, worse, before }: { better: string; worse: string; before: string | null | undefined }) => {
      // A comparison the other way around is a second one, so what was said before is taken back.
      if (before === worse) await send(worse, better, 0);
      await send(better, worse, null);
    },
    onSuccess: (_, { better, worse, before }) => {
      const pair = `${a} ${b}`;
      setSaid((all) => ({ ...all, [pair]: better }));
      undo.push({
        says: `Preferred ${better} to ${worse}`,
        undo: async () => {
          await send(better, worse, 0);
          if (before === worse) await send(worse, better, null);
          setSaid((all) => ({ ...all, [pair]: before ?? null }));
        },
      });
      if (at < pairs.length - 1) setAt(at + 1);
    },
  });
  const may = write && by.trim() !== "" && sides.isSuccess && !prefer.isPending;
  const before = said[`${a} ${b}`];
  const choose = (left: boolean) => may && prefer.mutate(left ? { better: a, worse: b, before } : { better: b, worse: a, before });
  const move = (to: number) => setAt(Math.max(0, Math.min(pairs.length - 1, to)));
  useKeys({
    "1": () => choose(true),
    "2": () => choose(false),
    n: () => move(at + 1),
    p: () => move(at - 1),
    u: undo.back,
  });
  useEffect(() => window.scrollTo(0, 0), [at]);
  return (
    <>
      <div className="bar">
        {write && <YouAre />}
        {known && !write && <span className="quiet">{needs("write", "Preferring one")}</span>}
        <button type="button" disabled={at === 0} onClick={() => move(at - 1)}>
          Previous <kbd>p</kbd>
        </button>
        <span>
          Pair {count(at + 1)} of {count(pairs.length)}
        </span>
        <button type="button" disabled={at === pairs.length - 1} onClick={() => move(at + 1)}>
          Next <kbd>n</kbd>
        </button>
      </div>
      {prefer.isError && <Problem error={prefer.error} />}
      <UndoLine undo={undo} />
      {sides.isError && <Problem error={sides.error} again={() => void sides.refetch()} />}
      {sides.isPending && <p className="quiet">Loading</p>}
      <SaidOfPair kind={kind} ids={[a, b]} />
      {sides.data !== undefined && (
        <div className="sides">
          {sides.data.map((side, place) => (
            <SideView key={side.id} side={side} other={sides.data[1 - place]!} preferred={before === side.id}>
              {write && (
                <button type="button" disabled={!may} title={by.trim() === "" ? "Say who you are first" : ""} onClick={() => choose(place === 0)}>
                  This one is better <kbd>{place + 1}</kbd>
                </button>
              )}
            </SideView>
          ))}
        </div>
      )}
    </>
  );
}

/** What people, or programs, preferred before, the last word of each. */
function SaidOfPair({ kind, ids }: { kind: "trajectory" | "step"; ids: [string, string] }) {
  const asked = useQuery({
    queryKey: ["live", "comparisons", ...ids],
    queryFn: async ({ signal }) => {
      const pages = await Promise.all(ids.map((id) => get<Page<Schemas["Feedback"]>>("feedback", { [`${kind}_id`]: id, kind: "comparison", limit: 1000 }, signal)));
      return lastWords(pages.flatMap((page) => page.items).filter((each) => ids.includes(each.other_id ?? ""))).filter((each) => each.value !== 0);
    },
  });
  if (asked.isError) return <Problem error={asked.error} />;
  if (asked.data === undefined || asked.data.length === 0) return null;
  return (
    <p className="quiet">
      Said so far:{" "}
      {asked.data.map((each, number) => (
        <span key={each.feedback_id}>
          {number > 0 && ", "}
          {visible(each.source)} prefers the {each[`${kind}_id`] === ids[0] ? "left" : "right"} one (<When at={each.created_at} />)
        </span>
      ))}
    </p>
  );
}

/** What both have at their beginning is folded, so that what differs stands beside one another. */
function SideView({ side, other, preferred, children }: { side: Side; other: Side; preferred: boolean; children: React.ReactNode }) {
  const messages = talkOf(side.steps);
  const theirs = talkOf(other.steps);
  let same = 0;
  // The last of each stays, so that there is something to compare.
  while (same < Math.min(messages.length, theirs.length) - 1 && JSON.stringify(messages[same]) === JSON.stringify(theirs[same])) same += 1;
  return (
    <section className={preferred ? "preferred" : ""} aria-label={visible(side.name)}>
      <h2>
        <Link href={`/trajectories/${encodeURIComponent(side.trajectory)}`}>{visible(side.name)}</Link>{" "}
        <span className="quiet">
          {side.reward === null ? "no reward" : `reward ${decimal(side.reward)}`}, {count(side.steps.length)} step{side.steps.length === 1 ? "" : "s"}
        </span>
      </h2>
      <div className="bar">{children}</div>
      {same > 0 && (
        <details>
          <summary>{count(same)} message{same === 1 ? "" : "s"} that both begin with</summary>
          {messages.slice(0, same).map((message, place) => (
            <MessageView key={place} message={message} />
          ))}
        </details>
      )}
      {messages.slice(same).map((message, place) => (
        <MessageView key={place} message={message} />
      ))}
    </section>
  );
}

/** The whole conversation of the last step, with its reply. */
function talkOf(steps: readonly Step[]): Schemas["Message"][] {
  const last = steps[steps.length - 1];
  if (last === undefined) return [];
  return [...(last.prompt_messages ?? []), ...(last.response_message == null ? [] : [last.response_message])];
}
