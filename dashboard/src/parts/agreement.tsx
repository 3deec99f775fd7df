import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Link, useSearchParams } from "wouter";

import { get, type Schemas } from "../api/client";
import { count, visible } from "../format";
import { DataTable } from "./data-table";
import { Facts } from "./facts";
import { Problem } from "./problem";

type Report = Schemas["AgreementReport"];

/** How far annotators agree on a label or a rating, beyond what chance would give, and on what they do not. */
export function Agreement() {
  const [asked, setAsked] = useSearchParams();
  const name = asked.get("name") ?? "";
  const kind = asked.get("kind") === "rating" ? "rating" : "label";
  const [text, setText] = useState(name);
  const [of, setOf] = useState(kind);
  const labels = useQuery({ queryKey: ["scan", "labels", ""], staleTime: 15_000, queryFn: ({ signal }) => get<Schemas["LabelsReport"]>("labels", {}, signal) });
  const report = useQuery({ queryKey: ["scan", "agreement", name, kind], enabled: name !== "", queryFn: ({ signal }) => get<Report>("agreement", { name, kind }, signal) });
  const known = (labels.data?.labels ?? []).map((each) => each.name).filter((each) => !each.startsWith("check.") && each !== "checked");
  return (
    <>
      <form
        className="form"
        onSubmit={(event) => {
          event.preventDefault();
          setAsked(new URLSearchParams({ tab: "agreement", name: text.trim(), ...(of === "rating" ? { kind: of } : {}) }));
        }}
      >
        <label>
          On the
          <select value={of} onChange={(event) => setOf(event.target.value === "rating" ? "rating" : "label")}>
            <option>label</option>
            <option>rating</option>
          </select>
        </label>
        <label>
          Name
          <input required list="names" value={text} onChange={(event) => setText(event.target.value)} />
        </label>
        <datalist id="names">
          {known.map((each) => (
            <option key={each} value={each} />
          ))}
        </datalist>
        <button disabled={text.trim() === ""}>Measure</button>
      </form>
      {name === "" && <p className="empty">Choose a label or a rating that more than one person gave: {known.length === 0 ? "nobody has given one yet." : known.slice(0, 10).map((each) => visible(each)).join(", ")}</p>}
      {report.isLoading && <p className="quiet">Measuring</p>}
      {report.isError && <Problem error={report.error} again={() => void report.refetch()} />}
      {report.data !== undefined && <Measured report={report.data} />}
    </>
  );
}

function Measured({ report }: { report: Report }) {
  const { agreement } = report;
  if (agreement.targets === 0) return <p className="empty">Nobody has given this {agreement.kind}.</p>;
  return (
    <>
      {!report.whole && <p className="problem">There is more than was read in the time that this may take; <code>agentworld feedback agreement</code> reads all.</p>}
      <Facts
        items={[
          ["Judged", `${count(agreement.targets)} by anybody, ${count(agreement.compared)} by two or more`],
          ["Disagreed", `${count(agreement.disagreed)} of ${count(agreement.compared)}`],
          ["Krippendorff's alpha", <Measure key="alpha" value={agreement.alpha} />],
          ["Said the same", agreement.percent == null ? "-" : `${Math.round(agreement.percent * 100)}%`],
          ["Fleiss' kappa", <span key="fleiss"><Measure value={agreement.fleiss} /> {agreement.fleiss_targets > 0 && <span className="quiet">over {count(agreement.fleiss_targets)} that {agreement.fleiss_annotators} judged</span>}</span>],
          ["Values are", `${agreement.level}`],
        ]}
      />
      <div className="now">
        <DataTable label="Annotators" columns={["Annotator", { name: "Judged", number: true }]} lines={Object.entries(agreement.annotators).map(([who, number]) => ({ key: who, cells: [visible(who), count(number)] }))} />
        <DataTable
          label="Pairs of annotators"
          columns={["Two", { name: "Both judged", number: true }, { name: "Cohen's kappa", number: true }]}
          lines={(agreement.cohen as unknown as [string, string, number, number | null][]).map(([first, second, number, kappa]) => ({ key: `${first} ${second}`, cells: [`${visible(first)} and ${visible(second)}`, count(number), <Measure key="kappa" value={kappa} />] }))}
          empty="No two of them judged the same."
        />
      </div>
      <h2>They do not agree on</h2>
      <DataTable
        label="Disagreements"
        columns={["Target", "Who said what"]}
        lines={report.disagreements.map((each) => ({
          key: each.target_id,
          cells: [
            each.target === "trajectory" ? <Link key="id" href={`/trajectories/${encodeURIComponent(each.target_id)}`}>{visible(each.target_id)}</Link> : `step ${visible(each.target_id)}`,
            visible(Object.entries(each.values).map(([who, value]) => `${who}: ${value}`).join(", ")),
          ],
        }))}
        empty="On all that two or more judged, they said the same."
      />
      {report.disagreements.length > 0 && <p className="quiet"><code>agentworld feedback disagreements {visible(agreement.name)} --review</code> asks for reviews of these.</p>}
    </>
  );
}

function Measure({ value }: { value: number | null | undefined }) {
  if (value == null) return <span className="quiet" title="Nobody can be compared, or all values are one and the same">not defined</span>;
  return <span className={value >= 0.8 ? "good" : value >= 0.6 ? "warm" : "bad"}>{value.toFixed(3)}</span>;
}
