import { useState, type ReactNode } from "react";
import Markdown from "react-markdown";
import remarkGfm from "remark-gfm";

import type { Schemas } from "../api/client";
import { count, cut, visible } from "../format";

type Message = Schemas["Message"];
const MOST = 20_000;
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
        <details>
          <summary>Thinking</summary>
          <Text text={message.reasoning} />
        </details>
      )}
      <Content content={message.content} plain={message.role === "tool"} />
      {(message.tool_calls ?? []).map((call) => (
        <div key={call.id} className="call">
          <code>
            {visible(call.function.name)} {visible(pretty(call.function.arguments))}
          </code>
          {results?.get(call.id) !== undefined && <Content content={results.get(call.id)!.content} plain />}
        </div>
      ))}
    </article>
  );
}

function Content({ content, plain }: { content: Message["content"]; plain: boolean }): ReactNode {
  if (content === null || content === undefined) return null;
  if (typeof content === "string") return <Text text={content} plain={plain} />;
  return content.map((part, number) =>
    "text" in part ? <Text key={number} text={part.text} plain={plain} /> : <p key={number} className="quiet">[{part.type}]</p>,
  );
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
};

/** Text in full or, where it is long, its beginning. */
export function Text({ text, plain = false }: { text: string; plain?: boolean }) {
  const [whole, setWhole] = useState(false);
  const part = whole ? { text, left: 0 } : cut(text, MOST);
  const said = visible(part.text);
  return (
    <div className="text">
      {plain || said.length > MOST_MARKDOWN ? (
        <pre>{said}</pre>
      ) : (
        <Markdown remarkPlugins={[remarkGfm]} components={COMPONENTS} skipHtml={false}>
          {said}
        </Markdown>
      )}
      {part.left > 0 && (
        <button type="button" onClick={() => setWhole(true)}>
          {count(part.left)} more characters: show
        </button>
      )}
    </div>
  );
}

function pretty(text: string): string {
  try {
    return JSON.stringify(JSON.parse(text), null, 1);
  } catch {
    return text;
  }
}
