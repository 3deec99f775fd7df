import { useReviewer } from "../reviewer";

/** The name that goes with what one says. */
export function YouAre() {
  const [by, setBy] = useReviewer();
  return (
    <label className="inline">
      You are <input value={by} placeholder="a name" onChange={(event) => setBy(event.target.value)} />
    </label>
  );
}
