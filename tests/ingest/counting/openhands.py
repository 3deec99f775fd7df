"""OpenHands' events, counted as prompts grow: each prefix that a reply was shown holds one more message."""

import json
from pathlib import Path

from tests.ingest.counting import Counts

FORMAT = "openhands"
SAMPLES = ("openhands_v0/*.json*", "openhands_v1/confirmation_mode", "openhands_v1/creating_agent_plan")
SILENT = ("null", "recall", "agent_state_changed", "change_agent_state")


def _texts(content):
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content or [])


class Walk:
    """`seen`: prefixes that prompts had, and replies; a message is (its events, role, characters, calls, reasoning)."""

    def __init__(self):
        self.seen, self.path, self.untold, self.results, self.reply, self.name = set(), [], [], [], None, None

    def close(self):
        if self.reply is not None:
            for length in range(1, len(self.path) + 1):
                self.seen.add(tuple(self.path[:length]))
            self.path.append(self.reply)
            self.seen.add(tuple(self.path))
        order = {call: place for place, call in enumerate(self.reply[5])} if self.reply else {}
        self.path += sorted(self.results, key=lambda result: order.get(result[6], 0))
        self.reply, self.results, self.name = None, [], None

    def say(self, event, text, role="user", call=None):
        self.close()
        self.path.append(((event,), role, len(text), 0, False, (), call))

    def answer(self, event, text, call):
        self.results.append(((event,), "tool", len(text), 0, False, (), call))

    def speak(self, event, name, text, calls, reasoning):
        if name is None or name != self.name:
            self.close()
            self.reply, self.name = ((), "assistant", 0, 0, False, (), None), name
        events, role, characters, count, thought, ids, _ = self.reply
        more = characters + len(text), count + len(calls), thought or bool(reasoning), (*ids, *calls)
        self.reply = ((*events, event), role, *more, None)

    def forget(self, gone, summary, offset):
        self.close()
        told = {message for prefix in self.seen for message in prefix}
        self.untold += [each for each in self.path if set(each[0]) <= gone and each not in told]
        self.path = [each for each in self.path if not set(each[0]) <= gone]
        self.path.insert(offset, (("summary",), "user", len(summary), 0, False, (), None))

    def end(self):
        self.close()
        told = {message for prefix in self.seen for message in prefix}
        return [prefix[-1] for prefix in self.seen] + self.untold + [each for each in self.path if each not in told]


def _v0(events):
    walks, done, said, last = [Walk()], set(), [], None
    for number, event in enumerate(events):
        if not isinstance(event, dict) or ("action" not in event and "observation" not in event):
            continue
        if "id" in event and any(
            event["id"] == other.get("id") for other in events[:number] if isinstance(other, dict)
        ):
            continue
        args, walk, name = event.get("args", event), walks[-1], event.get("id", number)
        kind = event.get("action") or event.get("observation")
        users = event.get("source", "user") == "user" and not args.get("wait_for_response")
        if kind in SILENT:
            continue
        if kind == "condensation":
            gone = set(range(args["forgotten_events_start_id"], args["forgotten_events_end_id"] + 1))
            walk.forget(gone, args["summary"], args["summary_offset"])
        elif kind == "system":
            walk.say(name, args["content"], "system")
        elif kind == "message" and users:
            walk.say(name, args["content"])
        elif event.get("action") and event.get("source") == "user":
            walk.say(name, f"{kind}: {args['command']}")
        elif "action" in event:
            told = event.get("tool_call_metadata", {}).get("model_response")
            if told and told["id"] in done:
                walk.reply = walk.reply and ((*walk.reply[0], name), *walk.reply[1:])
                continue
            last = number
            if told:
                done.add(told["id"])
                message = told["choices"][0]["message"]
                calls = [call["id"] for call in message["tool_calls"]]
                walk.speak(name, told["id"], message["content"] or "", calls, message.get("reasoning_content"))
            elif kind == "message":
                walk.speak(name, None, args["content"], [], None)
            else:
                walk.speak(name, None, args.get("thought") or "", [f"call {number}"], None)
            if kind == "delegate":
                walk.close()
                walks.append(Walk())
        elif kind == "delegate":
            said += walk.end()
            walks.pop()
            walks[-1].answer(name, event["content"], None)
        elif event.get("source") == "user" and "tool_call_metadata" not in event:
            walk.say(name, event["content"])
        else:
            call = event.get("tool_call_metadata", {}).get("tool_call_id", last)
            walk.answer(name, event["content"], call)
    return said + walks[0].end()


def _v1(events):
    walk = Walk()
    for event in events:
        kind, name = event["kind"].rpartition(".")[2], event["id"]
        told, call = event.get("llm_message", {}), event.get("tool_call_id")
        if kind == "SystemPromptEvent":
            walk.say(name, event["system_prompt"]["text"] + event["dynamic_context"]["text"], "system")
        elif kind == "MessageEvent" and told["role"] == "assistant":
            thought = told.get("reasoning_content") or told["thinking_blocks"]
            walk.speak(name, event.get("llm_response_id"), _texts(told["content"]), [], thought)
        elif kind == "MessageEvent":
            walk.say(name, _texts(told["content"]) + _texts(event.get("extended_content")))
        elif kind == "ActionEvent":
            thought = event.get("reasoning_content")
            walk.speak(name, event["llm_response_id"], _texts(event["thought"]), [call], thought)
        elif kind == "ObservationEvent":
            said = event["observation"]
            walk.answer(name, _texts(said["content"] if "content" in said else said["message"]), call)
        elif kind == "UserRejectObservation":
            walk.answer(name, "Action rejected: " + event["rejection_reason"], call)
        elif kind == "AgentErrorEvent":
            walk.answer(name, event["error"], call)
        elif kind == "Condensation":
            walk.forget(set(event["forgotten_event_ids"]), event["summary"], event["summary_offset"])
    return walk.end()


def _loaded(path):
    for text in path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]:
        try:
            yield json.loads(text)
        except ValueError:
            continue


def count(path: Path) -> Counts:
    """Of a file, or of a folder with the events of one conversation."""
    found = Counts(0, 0, 0, 0, 0, 0, 0, [], 0, 0, 0)
    values = [value for file in ([path] if path.is_file() else sorted(path.rglob("*.json"))) for value in _loaded(file)]
    if path.is_dir():
        values = [[value for value in values if "kind" in value]]
    for value in values:
        row = value if isinstance(value, dict) else {"history": value}
        events = []
        for event in row["history"]:
            events += event if isinstance(event, list) else [event]
        found.runs += 1
        said = (_v1 if "kind" in events[0] else _v0)(events)
        # A reply that a condensation kept is shown once more.
        found.steps += len({message for message in said if message[1] == "assistant"})
        for _, role, characters, calls, thought, *_ in said:
            found.messages += 1
            found.tool_results += role == "tool"
            found.characters += characters
            found.tool_calls += calls
            found.reasoning += thought
        found.labels += "result_explanation" in row
        result = row.get("test_result", {})
        for source in (row, row.get("report", {}), result, result.get("report", {})):
            found.rewards += [float(source[name]) for name in ("success", "resolved", "score") if name in source]
    return found
