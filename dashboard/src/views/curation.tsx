import { useScopes } from "../api/scopes";
import { Agreement } from "../parts/agreement";
import { Checks } from "../parts/checks";
import { Compare } from "../parts/compare";
import { ReviewQueue } from "../parts/review-queue";
import { Rules } from "../parts/rules";
import { Tabs } from "../parts/tabs";
import "./curation.css";

/** What people decide, one after the other or side by side; the rules that fill the queue; what checks and people said. */
export function Curation() {
  const { admin } = useScopes();
  return (
    <>
      <h1>Curation</h1>
      <Tabs
        label="Curation"
        tabs={[
          { id: "reviews", name: "Reviews", show: () => <ReviewQueue /> },
          { id: "compare", name: "Compare", show: () => <Compare /> },
          { id: "rules", name: "Rules", show: () => <Rules admin={admin} /> },
          { id: "checks", name: "Labels and checks", show: () => <Checks /> },
          { id: "agreement", name: "Agreement", show: () => <Agreement /> },
        ]}
      />
    </>
  );
}
