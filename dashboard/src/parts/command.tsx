import { visible } from "../format";
import { CopyText } from "./copy-text";

/** Something to paste elsewhere, with a button that copies it. `name`: what it is. */
export function Command({ name, text }: { name: string; text: string }) {
  return (
    <div className="command">
      <pre tabIndex={0} aria-label={name} role="region">
        <code>{visible(text)}</code>
      </pre>
      <div className="bar">
        <CopyText text={text} name={`Copy ${name}`} />
      </div>
    </div>
  );
}
