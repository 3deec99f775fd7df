import { ApiError } from "../api/client";

/** What went wrong: what, where, what to do. */
export function Problem({ error, again }: { error: unknown; again?: () => void }) {
  const said = error instanceof ApiError ? error : new ApiError(0, "fault", String(error));
  return (
    <div className="problem" role="alert">
      <strong>{said.message}</strong>
      {said.path !== null && <span> at {said.path}</span>}
      {said.hint !== null && <p>{said.hint}</p>}
      {again !== undefined && (
        <button type="button" onClick={again}>
          Try again
        </button>
      )}
    </div>
  );
}
