import { visible } from "../format";
import { Problem } from "./problem";
import type { Undo } from "./use-undo";

/** What was done last, and the way back. */
export function UndoLine({ undo }: { undo: Undo }) {
  return (
    <>
      {undo.undo.isError && <Problem error={undo.undo.error} />}
      {(undo.latest !== null || undo.taken !== null) && (
        <p role="status" className="undo">
          {undo.taken !== null ? `Taken back: ${visible(undo.taken)}` : visible(undo.latest!.says)}{" "}
          {undo.latest !== null && (
            <button type="button" disabled={undo.undo.isPending} onClick={undo.back}>
              Undo {undo.taken !== null && visible(undo.latest.says)} <kbd>u</kbd>
            </button>
          )}
        </p>
      )}
    </>
  );
}
