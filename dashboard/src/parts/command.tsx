import { useState } from "react";

import { visible } from "../format";

/** Something to paste elsewhere, with a button that copies it. `name`: what it is. */
export function Command({ name, text }: { name: string; text: string }) {
  const [said, setSaid] = useState<string | null>(null);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      setSaid("Copied");
    } catch {
      // Not offered, or refused, where the page did not come over https or from this machine.
      setSaid("The browser does not let this page copy; choose the text instead");
    }
  };
  return (
    <div className="command">
      <pre tabIndex={0} aria-label={name} role="region">
        <code>{visible(text)}</code>
      </pre>
      <div className="bar">
        <button type="button" onClick={() => void copy()} aria-label={`Copy ${name}`}>
          Copy
        </button>
        <span role="status" className="quiet">
          {said}
        </span>
      </div>
    </div>
  );
}
