import type { Schemas } from "../api/client";
import { cut, decimal, visible } from "../format";
import { corrected, lastWords, takesBack } from "../said";
import { TextDiff } from "./text-diff";
import { When } from "./when";

type Feedback = Schemas["Feedback"];
type Message = Schemas["Message"];
const MOST = 2_000;

/** What was said of something, the last word of each: who, what and when. `reply`: what was sampled, of a step. */
export function SaidList({ said, reply }: { said: readonly Feedback[]; reply?: Message | null }) {
  const words = lastWords(said).filter((each) => each.kind !== "correction" || reply == null || !takesBack(each.value, reply));
  if (words.length === 0) return null;
  return (
    <ul className="said">
      {words.map((each) => (
        <li key={each.feedback_id}>
          <strong>{visible(each.source)}</strong> <Word of={each} /> <span className="quiet"><When at={each.created_at} /></span>
          {each.comment != null && <div>{visible(cut(each.comment, MOST).text)}</div>}
          {each.kind === "correction" &&
            (reply == null ? <div>{visible(cut(corrected(each.value), MOST).text)}</div> : <TextDiff label={`What ${visible(each.source)} changed`} before={corrected(reply)} after={corrected(each.value)} />)}
        </li>
      ))}
    </ul>
  );
}

function Word({ of }: { of: Feedback }) {
  const name = of.name == null ? "" : visible(of.name);
  switch (of.kind) {
    case "rating":
      if (name === "thumb" && (of.value === 1 || of.value === 0)) return <>{of.value === 1 ? "says it is good" : "says it is bad"}</>;
      return (
        <>
          rated{name !== "" && ` ${name}`}: {typeof of.value === "number" ? decimal(of.value) : visible(String(of.value))}
        </>
      );
    case "label":
      return (
        <>
          labelled {name}: <code>{visible(cut(JSON.stringify(of.value) ?? "", 300).text)}</code>
        </>
      );
    case "correction":
      return <>corrected the reply</>;
    case "comparison":
      return of.value === 0 ? <>took back that it is better than {visible(of.other_id ?? "")}</> : <>prefers it to {visible(of.other_id ?? "")}</>;
    case "comment":
      return <>commented</>;
  }
}
