"""Inspect's logs, counted on the raw JSON."""

import json
import zipfile
from pathlib import Path

from tests.ingest.counting import Counts
from tests.ingest.trees import Tree, said

FORMAT = "inspect"
SAMPLES = ("inspect_ai/*",)
LETTERS = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}


def count(path: Path) -> Counts:
    counts = Counts(0, 0, 0, 0, 0, 0, 0, [], 0, 0, 0)
    for sample in _samples(path):
        _count(sample, counts)
    return counts


def _samples(path):
    if path.is_dir():
        return [json.loads(each.read_text()) for each in path.glob("samples/*.json")]
    if path.suffix == ".json":
        return [each for each in json.loads(path.read_text())["samples"] if isinstance(each, dict)]
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist() if name.startswith("samples/")}
    found = []
    for name, data in members.items():
        try:
            value = json.loads(data)
        except ValueError:
            continue
        if name.endswith("/sample.json"):
            found.append(_joined(value, members, name.removesuffix("sample.json")))
        elif name.count("/") == 1:
            found.append(value)
    return found


def _joined(shell, members, prefix):
    def sequence(kind):
        names = [name for name in members if name.startswith(f"{prefix}{kind}/") and name[-6].isdigit()]
        return [each for name in sorted(names) for each in json.loads(members[name])]

    pool = sequence("messages")
    return {
        **shell,
        "messages": [message for begin, end in shell["message_refs"] for message in pool[begin:end]],
        "events": sequence("events"),
        "events_data": {"messages": pool},
        "attachments": {str(at): text for at, text in enumerate(sequence("attachments"))},
    }


def _text(text, texts):
    for prefix in ("attachment://", "tc://"):
        text = texts.get(text.removeprefix(prefix), text) if text.startswith(prefix) else text
    return text


def _turn(message, texts):
    content = message["content"]
    thought = "reasoning" in message
    if isinstance(content, list):
        thought = any(part["type"] == "reasoning" for part in content)
        parts = [part["text"] for part in content if part["type"] == "text"]
        parts += [json.dumps(part, separators=(",", ":")) for part in content if part["type"] == "data"]
        content = "".join(parts)
    if not content and message.get("error"):
        content = message["error"]["message"]
    calls = [(call["id"], call["function"]) for call in message.get("tool_calls") or []]
    return said(message["role"], _text(content, texts), calls, thought, message.get("tool_call_id"))


def _count(sample, counts):
    transcript = sample.get("transcript") or {}
    texts = {**transcript.get("content", {}), **(sample.get("attachments") or {})}
    events = sample.get("events", transcript.get("events")) or []
    pool = sample.get("events_data", {}).get("messages", [])
    graders = {event["id"] for event in events if event["event"] == "span_begin" and event["type"] == "scorer"}
    tree, grading = Tree(), False
    for event in events:
        if event["event"] == "step" and event["type"] == "scorer":
            grading = event["action"] == "begin"
        if event["event"] == "score" and event.get("intermediate"):
            counts.rewards.append(event["score"]["value"])
        if event["event"] == "model" and not grading and event.get("span_id") not in graders:
            refs = [ref for ref in event.get("input_refs", []) if isinstance(ref, list) and ref[1] <= len(pool)]
            shown = event["input"] or [message for begin, end in refs for message in pool[begin:end]]
            for choice in event["output"]["choices"]:
                tree.step([_turn(message, texts) for message in shown], _turn(choice["message"], texts))
    turns = [_turn(message, texts) for message in sample["messages"] if isinstance(message, dict)]
    if tree.steps:
        tree.rest += [turn for turn in turns if turn not in tree.messages]
    else:
        tree.history(turns or [said("user", sample["input"])])
    counts.runs += 1
    tree.into(counts)
    for score in sample.get("scores", {"": sample.get("score")}).values():
        value = score["value"] if isinstance(score, dict) else None
        values = value.values() if isinstance(value, dict) else value if isinstance(value, list) else [value]
        for each in values:
            number = LETTERS.get(each, each) if isinstance(each, str) else each
            try:
                counts.rewards += [float(number)] if number is not None and number == number else []
            except ValueError:
                counts.labels += 1
