import { get, type Schemas } from "../api/client";
import { REVIEWS } from "../columns";
import { count, decimal, visible } from "../format";
import { holdsAll, quoted, toggledAll } from "../where";
import { Problem } from "./problem";
import { useScan } from "./use-scan";
import "./facets.css";

type Facets = Schemas["Facets"];
const NAMES: Record<string, string> = { status: "Status", readiness: "Readiness", channel: "Channel", agent: "Agent", "task.task_set": "Task set", review: "Review" };

export const useFacets = (where: string, wanted: boolean) =>
  useScan(["facets", where], (limit, signal) => get<Facets>("facets", { where, limit }, signal), { enabled: wanted });

/** The values that fields have, for completion. */
export const valuesOf = (facets: Facets | undefined): Record<string, string[]> =>
  Object.fromEntries(Object.entries(facets?.values ?? {}).map(([name, found]) => [name, found.flatMap((each) => each.value ?? [])]));

type Props = { asked: ReturnType<typeof useFacets>; where: string; set: (where: string) => void };

/** How frequent values are among what matches; each is a condition to add or to take away. */
export function FacetPanel({ asked, where, set }: Props) {
  if (asked.isError) return <Problem error={asked.error} again={() => void asked.refetch()} />;
  if (asked.data === undefined) return <p className="quiet">Counting</p>;
  const { looked, whole, values, rewards, unrewarded } = asked.data;
  const rewarded = rewards.map((each, number) => ({
    name: each.low === each.high ? decimal(each.low) : `${decimal(each.low)} to ${decimal(each.high)}`,
    conditions: each.low === each.high ? [`reward == ${each.low}`] : [`reward >= ${each.low}`, `reward ${number === rewards.length - 1 ? "<=" : "<"} ${each.high}`],
    count: each.count,
  }));
  const none = unrewarded > 0 ? [{ name: "none", conditions: ["reward is null"], count: unrewarded }] : [];
  return (
    <aside className="facets-panel" aria-label="Facets">
      <p className="quiet">{whole ? `All ${count(looked)} that match are counted.` : `Counts are of the newest ${count(looked)}; more match.`}</p>
      <div className="facets">
        {Object.entries(values).map(([name, found]) => (
          <Facet
            key={name}
            name={NAMES[name] ?? name}
            capped={!whole}
            where={where}
            set={set}
            values={found.map((each) => ({
              name: name === "review" ? (REVIEWS[each.value ?? ""] ?? "none") : (each.value ?? "none"),
              conditions: [each.value === null ? `${name} is null` : `${name} == ${quoted(each.value)}`],
              count: each.count,
            }))}
          />
        ))}
        <Facet name="Reward" capped={!whole} where={where} set={set} values={[...rewarded, ...none]} />
      </div>
    </aside>
  );
}

type FacetProps = { name: string; capped: boolean; where: string; set: (where: string) => void; values: { name: string; conditions: string[]; count: number }[] };

function Facet({ name, capped, where, set, values }: FacetProps) {
  const most = Math.max(1, ...values.map((each) => each.count));
  return (
    <section>
      <h2>{name}</h2>
      <ul>
        {values.map((each) => (
          <li key={each.conditions.join()}>
            <button type="button" aria-pressed={holdsAll(where, each.conditions)} onClick={() => set(toggledAll(where, each.conditions))}>
              <span className="facet-share" style={{ width: `${(100 * each.count) / most}%` }} />
              <span className="facet-name">{visible(each.name)}</span>
              <span>
                {count(each.count)}
                {capped && "+"}
              </span>
            </button>
          </li>
        ))}
      </ul>
    </section>
  );
}
