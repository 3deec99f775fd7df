import { useEffect, useState } from "react";

import { useReviewer } from "../reviewer";

/** The name that goes with what one says. It counts once it is whole, as the field is left or with Enter: under its
 * beginnings nobody says anything, nor takes reviews from others. */
export function YouAre() {
  const [by, setBy] = useReviewer();
  const [text, setText] = useState(by);
  useEffect(() => setText(by), [by]);
  return (
    <label className="inline">
      You are{" "}
      <input
        value={text}
        placeholder="a name"
        onChange={(event) => setText(event.target.value)}
        onBlur={() => setBy(text)}
        onKeyDown={(event) => {
          if (event.key === "Enter") setBy(text);
        }}
      />
    </label>
  );
}
