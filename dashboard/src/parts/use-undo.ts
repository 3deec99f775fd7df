import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useRef, useState } from "react";

import { UndoStack, type Done } from "../undo";

/** What can be taken back with `u`; after it, `after` is called. */
export function useUndo(after: () => unknown) {
  const client = useQueryClient();
  const stack = useRef(new UndoStack());
  const [latest, setLatest] = useState<Done | null>(null);
  const [taken, setTaken] = useState<string | null>(null);
  const undo = useMutation({
    mutationFn: () => stack.current.back(),
    onSuccess: (one) => {
      setLatest(stack.current.latest);
      setTaken(one?.says ?? null);
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
  return { latest, taken, push, undo };
}

export type Undo = ReturnType<typeof useUndo>;
