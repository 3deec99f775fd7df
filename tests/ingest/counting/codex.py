"""Codex's lines, counted as prompts grow: each prefix that a reply was shown holds one more message."""

import json
from pathlib import Path

from tests.ingest.counting import Counts

FORMAT = "codex"
SAMPLES = ("codex_rollout/*",)
OPAQUE = ("compaction", "ghost_snapshot")
BUILT_IN = ("tool_search_call", "web_search_call", "local_shell_call", "image_generation_call")


def _objects(path):
    for text in path.read_text().splitlines():
        try:
            line = json.loads(text)
        except ValueError:
            continue
        if isinstance(line, dict):
            yield line


def _text(value):
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return _text(value["text"] if "text" in value else value["content"])
    texts = []
    for part in value or []:
        if "text" in part:
            texts.append(part["text"])
        elif part["type"] not in ("input_image", "encrypted_content"):
            texts.append(json.dumps(part))
    return "".join(texts)


class Prompts:
    """`seen`: prefixes that replies were shown, and the replies; `untold`: messages that none was shown."""

    def __init__(self, seen):
        self.seen, self.untold = seen, []
        self.path, self.open, self.outputs, self.answered, self.start = [], [], [], False, 0

    def close(self):
        if any(item["type"] != "reasoning" or item["summary"] for item in self.open):
            for length in range(1, len(self.path) + 1):
                self.seen.add(tuple(self.path[:length]))
            self.path.append("reply" + json.dumps(self.open))
            self.seen.add(tuple(self.path))
        self.path += self.outputs
        self.open, self.outputs, self.answered = [], [], False

    def read(self, item):
        kind = item.get("type")
        if kind in OPAQUE or kind == "hologram":
            return
        if (kind == "message" and item["role"] == "assistant") or kind in (
            "reasoning",
            "function_call",
            "custom_tool_call",
            *BUILT_IN,
        ):
            if self.answered:
                self.close()
            self.open.append(item)
            if kind == "image_generation_call":
                self.outputs.append("tool")
        elif kind.endswith("_output"):
            self.outputs.append("tool" + _text(item["output"] if "output" in item else item["tools"]))
            self.answered = True
        else:
            self.close()
            self.path.append("said" + _text(item["content"]))

    def counted(self, told):
        info = told["info"] or {}
        if info.get("last_token_usage", {}).get("output_tokens") and not self.answered:
            self.close()

    def aside(self, start):
        told = max([n + 1 for n, each in enumerate(self.path) if each.startswith("reply")], default=0)
        self.untold += self.path[max(start, told, self.start) :]


def _rollout(lines, seen):
    prompts = Prompts(seen)
    every = [line["payload"] for line in lines if line.get("type") == "response_item"]
    every += [
        item
        for line in lines
        if line.get("type") == "compacted"
        for item in line["payload"].get("replacement_history", [])
    ]
    known = {_text(item["content"]) for item in every if item.get("type") == "message"}
    thoughts = {part["text"] for item in every for part in item.get("summary") or []}
    system = next(
        (
            f"said{line['payload']['base_instructions']['text']}"
            for line in lines
            if "base_instructions" in line.get("payload", {})
        ),
        None,
    )
    prompts.path = [system] if system else []
    prompts.start = len(prompts.path)
    for line in lines:
        told, kind = line.get("payload", line), line.get("type")
        if not isinstance(told, dict):
            continue
        event = told.get("type") if kind == "event_msg" else None
        if event == "item_completed" and told["item"]["type"] in ("UserMessage", "AgentMessage"):
            event = "user_message" if told["item"]["type"] == "UserMessage" else "agent_message"
            told = {"message": _text(told["item"]["content"])}
        if kind == "response_item" or (
            "payload" not in line and kind in ("message", "function_call", "function_call_output")
        ):
            prompts.read(told)
        elif event == "user_message" and told["message"] not in known:
            prompts.read({"type": "message", "role": "user", "content": told["message"]})
        elif event == "agent_message" and told["message"] not in known:
            prompts.read({"type": "message", "role": "assistant", "content": told["message"]})
        elif event == "agent_reasoning" and told["text"] not in thoughts:
            prompts.read({"type": "reasoning", "summary": [{"text": told["text"]}]})
        elif kind == "compacted":
            prompts.close()
            prompts.aside(0)
            before = prompts.path
            prompts.path = [system] if system else []
            if "replacement_history" in told:
                history = Prompts(set())
                for item in told["replacement_history"]:
                    history.read(item)
                history.close()
                prompts.path += [
                    "kept" + each.removeprefix("reply") if each.startswith("reply") else each for each in history.path
                ]
            else:
                prompts.path += [each for each in before[prompts.start and 1 :] if each.startswith("said")]
                prompts.path.append("said" + told["message"])
            prompts.start = len(prompts.path)
        elif event == "thread_rolled_back":
            prompts.close()
            asked = [n for n, each in enumerate(prompts.path) if each.startswith("said") and n > 2]
            cut = asked[-told["num_turns"]]
            prompts.aside(cut)
            prompts.path = prompts.path[:cut]
        elif kind == "turn_context" or event in ("task_started", "task_complete", "turn_aborted"):
            prompts.close()
        elif event == "token_count":
            prompts.counted(told)
    prompts.close()
    prompts.aside(0)
    return prompts.untold


def _of(element, found):
    found.messages += 1
    if element.startswith("reply"):
        items = json.loads(element.removeprefix("reply"))
        found.steps += 1
        found.tool_calls += sum(item["type"].endswith("_call") for item in items)
        found.reasoning += any(item["type"] == "reasoning" and bool(item["summary"]) for item in items)
        found.characters += sum(len(_text(item["content"])) for item in items if item["type"] == "message")
    elif element.startswith("kept"):
        found.characters += sum(len(_text(item["content"])) for item in json.loads(element.removeprefix("kept")))
    else:
        found.tool_results += element.startswith("tool")
        found.characters += len(element) - 4


def _stream(lines, found):
    items = {}
    for line in lines:
        if line["type"].startswith("item."):
            items[line["item"]["id"]] = line["item"]
    answered = False
    group = []
    groups = []
    unended = [item for item in items.values() if item["type"] == "todo_list"]
    for item in [*(i for i in items.values() if i not in unended), *unended]:
        if item["type"] == "dream":
            continue
        if answered or (group and item["type"] == "todo_list"):
            groups.append(group)
            group, answered = [], False
        group.append(item)
        results = [text for name in ("aggregated_output", "result") if (text := item.get(name))]
        for text in results:
            answered = True
            found.messages += 1
            found.tool_results += 1
            found.characters += len(_text(text))
    # A turn ends a reply: two answers that follow one another are two.
    groups.append(group)
    for each in groups:
        answers = [item for item in each if item["type"] == "agent_message"]
        found.messages += max(1, len(answers))
        found.steps += max(1, len(answers))
        found.reasoning += any(item["type"] == "reasoning" for item in each)
        found.characters += sum(len(item["text"]) for item in answers)
        found.tool_calls += sum(item["type"] not in ("agent_message", "reasoning") for item in each)


def count(path: Path) -> Counts:
    """Of a file, or of a folder with threads that belong together."""
    found = Counts(0, 0, 0, 0, 0, 0, 0, [], 0, 0, 0)
    seen = set()
    for file in [path] if path.is_file() else sorted(path.glob("*.jsonl")):
        lines = list(_objects(file))
        if any(line.get("type") == "thread.started" for line in lines):
            found.runs += 1
            _stream(lines, found)
            continue
        for element in _rollout(lines, seen):
            _of(element, found)
    for prefix in seen:
        _of(prefix[-1], found)
    found.runs += 1 if found.messages and not found.runs else 0
    return found
