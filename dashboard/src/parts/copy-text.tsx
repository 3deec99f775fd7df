import { useState } from "react";

/** A button that copies a text which stands beside it. */
export function CopyText({ text, name }: { text: string; name: string }) {
  const [said, setSaid] = useState("");
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
    <>
      <button type="button" aria-label={name} title={name} onClick={() => void copy()}>
        Copy
      </button>
      <span role="status" className="quiet">
        {said}
      </span>
    </>
  );
}
