import { useQuery } from "@tanstack/react-query";

import { get, type Page, type Schemas } from "../api/client";
import { count, visible } from "../format";
import { Problem } from "../parts/problem";
import { When } from "../parts/when";

/** Versions of datasets, the newest first. */
export function Datasets() {
  const versions = useQuery({
    queryKey: ["live", "datasets"],
    queryFn: ({ signal }) => get<Page<Schemas["DatasetVersion"]>>("datasets", { limit: 100 }, signal),
  });
  if (versions.isPending) return <p className="quiet">Loading</p>;
  if (versions.isError) return <Problem error={versions.error} again={() => void versions.refetch()} />;
  if (versions.data.items.length === 0) {
    return (
      <div className="empty">
        <h1>No dataset is frozen yet</h1>
        <p>
          <code>agentworld dataset create NAME --where 'ready' --split task</code> freezes what matches, with its provenance.
        </p>
      </div>
    );
  }
  return (
    <>
      <h1>Datasets</h1>
      <table>
        <thead>
          <tr>
            <th>Name</th>
            <th>Version</th>
            <th className="number">Rows</th>
            <th className="number">Steps</th>
            <th>Splits</th>
            <th>State</th>
            <th>Frozen</th>
          </tr>
        </thead>
        <tbody>
          {versions.data.items.map((each) => (
            <tr key={each.version}>
              <td>{visible(each.name)}</td>
              <td>
                <code>{each.version}</code>
              </td>
              <td className="number">{count(each.rows ?? 0)}</td>
              <td className="number">{count(each.steps ?? 0)}</td>
              <td>{visible(Object.keys(each.splits ?? {}).join(", "))}</td>
              <td>{each.state}</td>
              <td>
                <When at={each.created_at} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </>
  );
}
