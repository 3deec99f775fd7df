import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useId, useRef, useState } from "react";

import { UndoStack, type Done } from "../undo";

/** What can be taken back with `u`; after it, `after` is called. What is said in its `scope` and what is taken back go to
 * the server one after the other, in the order of the keys: who takes back what is still on its way means that. */
export function useUndo(after: () => unknown) {
  const client = useQueryClient();
  const stack = useRef(new UndoStack());
  const [latest, setLatest] = useState<Done | null>(null);
  const [taken, setTaken] = useState<string | null>(null);
  const scope = { id: useId() };
  const undo = useMutation({
    scope,
    mutationFn: () => stack.current.back(),
    onSuccess: (one) => {
      if (one === null) return;
      setLatest(stack.current.latest);
      setTaken(one.says);
      // The next one may be taken back while views are asked for anew.
      void after();
      void client.invalidateQueries({ queryKey: ["live"] });
    },
  });
  const push = (done: Done) => {
    stack.current.push(done);
    setTaken(null);
    setLatest(done);
  };
  const back = () => undo.mutate();
  return { latest, taken, push, undo, back, scope };
}

export type Undo = ReturnType<typeof useUndo>;
