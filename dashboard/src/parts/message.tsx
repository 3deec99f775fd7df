import { useState, type ReactNode } from "react";
import Markdown from "react-markdown";
import remarkGfm from "remark-gfm";

import type { Schemas } from "../api/client";
import { count, cut, visible } from "../format";
import { JsonView, parsed } from "./json-view";
import { PoolImage } from "./pool-image";
import "./message.css";

type Message = Schemas["Message"];
const MOST = 20_000;
const MORE = 200_000;
const MOST_MARKDOWN = 50_000;

/** One message as people read it. Stored text is never markup: no HTML, no image from elsewhere, no link to follow. */
export function MessageView({ message, results }: { message: Message; results?: Map<string, Message> }) {
  return (
    <article className={`message ${message.role}`}>
      <header>
        {message.role}
        {message.name != null && <span className="quiet"> {visible(message.name)}</span>}
      </header>
      {message.reasoning != null && message.reasoning !== "" && (
        <details className="thinking">
          <summary>Thinking, {count(message.reasoning.length)} characters</summary>
          <Text text={message.reasoning} />
        </details>
      )}
      <Content content={message.content} plain={message.role === "tool"} />
      {(message.tool_calls ?? []).map((call, number) => (
        <div key={number} className="call">
          <div className="call-asked">
            <code>{visible(cut(call.function.name, 200).text)}</code>
            <Data text={call.function.arguments} />
          </div>
          {results?.get(call.id) !== undefined && (
            <div className="call-result">
              <span className="quiet">result</span>
              <Content content={results.get(call.id)!.content} plain />
            </div>
          )}
        </div>
      ))}
    </article>
  );
}

function Content({ content, plain }: { content: Message["content"]; plain: boolean }): ReactNode {
  if (content === null || content === undefined) return null;
  if (typeof content === "string") return plain ? <Data text={content} /> : <Text text={content} />;
  return content.map((part, number) => {
    if ("text" in part) return plain ? <Data key={number} text={part.text} /> : <Text key={number} text={part.text} />;
    return <PoolImage key={number} digest={part.digest} type={part.media_type} />;
  });
}

/** Text of a program: folded where it is JSON, else as it stands. */
function Data({ text }: { text: string }) {
  const value = parsed(text);
  return value === undefined ? <Text text={text} plain /> : <JsonView value={value} />;
}

const COMPONENTS = {
  a: ({ children, href }: { children?: ReactNode; href?: string | undefined }) => (
    <span className="link" title={visible(href ?? "")}>
      {children}
    </span>
  ),
  img: ({ alt, src }: { alt?: string | undefined; src?: string | Blob | undefined }) => (
    <span className="quiet" title={visible(String(src ?? ""))}>
      [image {visible(alt ?? "")}]
    </span>
  ),
  // Boxes of task lists are no controls.
  input: ({ checked }: { checked?: boolean | undefined }) => <span>{checked ? "☑" : "☐"} </span>,
};

/** Text in full or, where it is long, its beginning. */
export function Text({ text, plain = false }: { text: string; plain?: boolean }) {
  const [most, setMost] = useState(MOST);
  const part = cut(text, most);
  const said = visible(part.text);
  return (
    <div className="text">
      {plain || said.length > MOST_MARKDOWN ? (
        <pre tabIndex={0}>{said}</pre>
      ) : (
        <Markdown remarkPlugins={[remarkGfm]} components={COMPONENTS} skipHtml={false}>
          {said}
        </Markdown>
      )}
      {part.left > 0 && (
        <button type="button" onClick={() => setMost(most + MORE)}>
          {count(part.left)} more characters: show{part.left > MORE ? ` ${count(MORE)} of them` : ""}
        </button>
      )}
    </div>
  );
}
