import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Link } from "wouter";

import { get, type Page, type Schemas } from "../api/client";
import { count, counted, cut, visible } from "../format";
import { DataTable } from "./data-table";
import { Problem } from "./problem";
import { useScan } from "./use-scan";

type LabelCount = Schemas["LabelCount"];

/** Which labels there are, by checks and by people: how many trajectories have them, with values, examples and evidence. */
export function Checks() {
  const [where, setWhere] = useState("");
  const [text, setText] = useState("");
  const labels = useScan(["labels", where], (limit, signal) => get<Schemas["LabelsReport"]>("labels", { where, limit }, signal), { again: 15_000 });
  const of = (checks: boolean) => (labels.data?.labels ?? []).filter((each) => each.name.startsWith("check.") === checks && each.name !== "checked");
  return (
    <>
      <form
        role="search"
        onSubmit={(event) => {
          event.preventDefault();
          setWhere(text.trim());
        }}
      >
        <input type="search" aria-label="Of trajectories for which this holds" placeholder="of trajectories for which this holds, such as created_at > now - 1d" spellCheck={false} value={text} onChange={(event) => setText(event.target.value)} />
        <button>Count</button>
      </form>
      {labels.isPending && <p className="quiet">Counting</p>}
      {labels.isError && <Problem error={labels.error} again={() => void labels.refetch()} />}
      {labels.data !== undefined && (
        <>
          <p className="quiet">
            Over the newest {counted(labels.data.looked, "trajectory", "trajectories")}{labels.data.whole ? ", all that there are" : ", not all that there are"}. A label that is not there means that nothing was found, or that the check has not run.
          </p>
          <h2>Checks</h2>
          <Labels
            name="Labels of checks"
            labels={of(true)}
            empty={
              <>
                No check has found anything here. <code>agentworld curate run</code> runs them on what has ended, <code>--follow</code> as it ends.
              </>
            }
          />
          <h2>Other labels</h2>
          <Labels name="Other labels" labels={of(false)} empty="Nobody has set a label yet. In a review there are buttons for those that the server offers." />
        </>
      )}
    </>
  );
}

function Labels({ name, labels, empty }: { name: string; labels: readonly LabelCount[]; empty: React.ReactNode }) {
  return (
    <DataTable
      label={name}
      columns={["Label", { name: "Trajectories", number: true }, "Values", "Such as"]}
      lines={labels.map((each) => ({
        key: each.name,
        cells: [
          <Link key="name" href={`/trajectories?where=${encodeURIComponent(`has label.${path(each.name)}`)}`}>{visible(each.name)}</Link>,
          count(each.count),
          <ul key="values" className="members">
            {each.values.map((value) => (
              <li key={value.value}>
                <code>{visible(value.value)}</code> <span className="quiet">{count(value.count)}</span>
              </li>
            ))}
            {each.others > 0 && <li className="quiet">{counted(each.others, "other value", "other values")}</li>}
          </ul>,
          <ul key="examples" className="members">
            {each.values.slice(0, 3).flatMap((value) => value.examples.slice(0, 1)).map((id) => (
              <li key={id}>
                <Example id={id} name={each.name} />
              </li>
            ))}
          </ul>,
        ],
      }))}
      empty={empty}
    />
  );
}

/** A trajectory, and what was found there, which is asked for when it is wanted. */
function Example({ id, name }: { id: string; name: string }) {
  const [wanted, setWanted] = useState(false);
  const found = useQuery({
    queryKey: ["evidence", id, name],
    enabled: wanted,
    queryFn: ({ signal }) => get<Page<Schemas["Feedback"]>>("feedback", { trajectory_id: id, kind: "label", name, limit: 100 }, signal),
  });
  return (
    <>
      <Link href={`/trajectories/${encodeURIComponent(id)}`}>{visible(id)}</Link>{" "}
      {!wanted && (
        <button type="button" aria-label={`Evidence for ${visible(name)} on ${visible(id)}`} onClick={() => setWanted(true)}>
          evidence
        </button>
      )}
      {found.isError && <Problem error={found.error} />}
      {found.isSuccess && found.data.items.length === 0 && <span className="quiet">It was sent with the trajectory.</span>}
      {(found.data?.items ?? []).map((each) => (
        <div key={each.feedback_id}>
          <span className="quiet">{visible(each.source ?? "")}</span> {each.comment == null ? <span className="quiet">gave no evidence</span> : <code>{visible(cut(each.comment, 500).text)}</code>}
        </div>
      ))}
    </>
  );
}

/** A key as `where` takes it: in quotes where it is no plain word. */
const path = (name: string): string => (/^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$/.test(name) ? name : JSON.stringify(name));
