import { useState } from "react";

import type { Schemas } from "../api/client";
import { cut, count } from "../format";
import { bodyOf, curlOf, jsonOf, pythonOf } from "../request";
import { visible } from "../format";

type Step = Schemas["Step"];
const MOST = 100_000;
const FORMS = { json: "Body", curl: "curl", python: "Python" } as const;

/** The call as it was sent, put together from the step, and copies of it to send again. */
export function ExchangeView({ step }: { step: Step }) {
  const [form, setForm] = useState<keyof typeof FORMS>("json");
  const [copied, setCopied] = useState<string | null>(null);
  if (step.prompt_messages == null) return <p className="quiet">This step has no messages, so the call cannot be put together again.</p>;
  const origin = window.location.origin;
  const text = form === "curl" ? curlOf(step, origin) : form === "python" ? pythonOf(step, origin) : jsonOf(bodyOf(step));
  const part = cut(text, MOST);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      setCopied(`Copied as ${FORMS[form]}`);
    } catch {
      setCopied("The browser does not let this page copy; choose the text instead");
    }
  };
  return (
    <>
      <div className="bar">
        {(Object.keys(FORMS) as (keyof typeof FORMS)[]).map((each) => (
          <button key={each} type="button" aria-pressed={form === each} onClick={() => (setForm(each), setCopied(null))}>
            {FORMS[each]}
          </button>
        ))}
        <button type="button" onClick={() => void copy()}>
          Copy
        </button>
        <span role="status" className="quiet">
          {copied}
        </span>
      </div>
      <p className="quiet">
        Put together from what is stored, as the chat API takes it
        {step.dialect != null && step.dialect !== "chat" && `; the caller used ${step.dialect}`}. The key is not part of it: set AGENTWORLD_API_KEY.
      </p>
      <div className="text">
        <pre tabIndex={0} className="exchange">
          {visible(part.text)}
        </pre>
        {part.left > 0 && <p className="quiet">and {count(part.left)} characters more, which Copy takes too</p>}
      </div>
    </>
  );
}
