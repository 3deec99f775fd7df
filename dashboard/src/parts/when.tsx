import { age, exact } from "../format";

/** A moment: how long ago, and exactly on hover. */
export function When({ at }: { at: number | null | undefined }) {
  if (at === null || at === undefined) return <span className="quiet">not yet</span>;
  return (
    <time dateTime={new Date(at * 1000).toISOString()} title={exact(at)}>
      {age(at)}
    </time>
  );
}
