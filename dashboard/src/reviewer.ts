/** Who reviews here: a name that goes with what they say, kept for this tab alone. */

import { useEffect, useState } from "react";

const NAME = "reviewer";

export function useReviewer(): [string, (name: string) => void] {
  const [by, setBy] = useState(() => sessionStorage.getItem(NAME) ?? "");
  useEffect(() => sessionStorage.setItem(NAME, by), [by]);
  return [by, setBy];
}
