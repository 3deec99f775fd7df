import { useQuery } from "@tanstack/react-query";
import { Link } from "wouter";

import { ApiError, get, type Page, type Schemas } from "../api/client";
import { counted, visible } from "../format";
import { Problem } from "./problem";
import { When } from "./when";

type Version = Schemas["DatasetVersion"];
type Gone = { version: string; gone: true };
const MOST = 50;

/** What a version goes on from, up to the first, and what goes on from it. */
export function Lineage({ version }: { version: Version }) {
  const before = useQuery({ queryKey: ["dataset-lineage", version.version], queryFn: ({ signal }) => ancestors(version, signal) });
  const all = useQuery({ queryKey: ["live", "datasets"], queryFn: ({ signal }) => get<Page<Version>>("datasets", { limit: 100 }, signal) });
  if (before.isError) return <Problem error={before.error} again={() => void before.refetch()} />;
  if (all.isError) return <Problem error={all.error} />;
  const children = (all.data?.items ?? []).filter((each) => (each.parents ?? []).includes(version.version));
  return (
    <ol className="lineage">
      {(before.data ?? []).map((each) => (
        <li key={each.version}>{"gone" in each ? <span className="quiet">{visible(each.version)}, which is deleted</span> : <One version={each} />}</li>
      ))}
      <li aria-current="true">
        <One version={version} />
        {(before.data ?? []).length === 0 && before.isSuccess && <p className="quiet">It goes on from no other version.</p>}
      </li>
      {children.map((each) => (
        <li key={each.version} className="child">
          <One version={each} />
        </li>
      ))}
    </ol>
  );
}

function One({ version }: { version: Version }) {
  return (
    <>
      <Link href={`/datasets/${encodeURIComponent(version.version)}?tab=lineage`}>{visible(version.version)}</Link> <span className="quiet">{counted(version.rows ?? 0, "row", "rows")}, <When at={version.created_at} /></span>
      {version.note != null && <p className="quiet">{visible(version.note)}</p>}
      <p>
        <code>{visible(version.selection.where ?? "all that is ready")}</code>
      </p>
    </>
  );
}

/** The oldest first, each once. */
async function ancestors(version: Version, signal: AbortSignal): Promise<(Version | Gone)[]> {
  const found = new Map<string, Version | Gone>();
  let next = version.parents ?? [];
  while (next.length > 0 && found.size < MOST) {
    const wanted = next.filter((name) => !found.has(name)).slice(0, MOST - found.size);
    const read = await Promise.all(
      wanted.map((name) =>
        get<Version>(`datasets/${encodeURIComponent(name)}`, {}, signal).catch((error) => {
          if (error instanceof ApiError && error.status === 404) return { version: name, gone: true as const };
          throw error;
        }),
      ),
    );
    for (const each of read) found.set(each.version, each);
    next = read.flatMap((each) => ("gone" in each ? [] : (each.parents ?? [])));
  }
  return [...found.values()].reverse();
}
