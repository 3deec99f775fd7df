"""SWE-agent's trajectories, counted on the raw JSON."""

import json
from pathlib import Path

from tests.ingest.counting import Counts
from tests.ingest.trees import Tree, said

FORMAT = "swe-agent"
SAMPLES = ("swe_agent/*.traj",)


def count(path: Path) -> Counts:
    counts = Counts(0, 0, 0, 0, 0, 0, 0, [], 0, 0, 0)
    for document in _documents(path.read_text()):
        if "attempts" in document:
            found = [each for each in document["attempts"] if "history" in each]
        else:
            found = [document]
        for each in found:
            _count(each, counts)
    return counts


def _documents(text):
    try:
        return [json.loads(text)]
    except ValueError:
        found = []
        for line in text.splitlines():
            try:
                found.append(json.loads(line))
            except ValueError:
                continue
        return found


def _text(content):
    return "".join(part["text"] for part in content) if isinstance(content, list) else content


def _turn(item):
    calls = [(call["id"], call["function"]["name"]) for call in item.get("tool_calls") or []]
    thought = any("thinking" in block for block in item.get("thinking_blocks") or [])
    demo = item.get("is_demo") and item["role"] == "assistant"
    text = item.get("system_prompt") or item["text"] if "text" in item else item["content"]
    role = "shown" if demo else {"ai": "assistant"}.get(item["role"], item["role"])
    return said(role, _text(text), calls, thought, (item.get("tool_call_ids") or [None])[0])


def _count(document, counts):
    counts.runs += 1
    info, tree = document.get("info") or {}, Tree()
    messages = document.get("history") or document.get("messages")
    turns = messages if isinstance(messages, list) else json.loads(messages) if messages else None
    trajectory = [step for step in document.get("trajectory") or [] if isinstance(step, dict)]
    if turns and any("query" in step for step in trajectory):
        answers = [_turn(item) for item in turns if item["role"] == "assistant"]
        for step in trajectory:
            shown = [_turn(item) for item in step["query"] if item]
            if shown:
                mine = next((answer for answer in answers if answer[1] == step["response"]), None)
                tree.step(shown, mine or said("assistant", step["response"]))
        last = max(at for at, item in enumerate(turns) if item["role"] == "assistant")
        tree.rest += [_turn(item) for item in turns[last + 1 :]]
    elif turns:
        tree.history([_turn(item) for item in turns])
    elif "text" in trajectory[0]:
        tree.history([_turn(item) for item in trajectory])
    else:
        pairs = [[said("assistant", step["response"]), said("user", step["observation"])] for step in trajectory]
        tree.history([each for pair in pairs for each in pair])
    tree.into(counts)
    masks = [turn["mask"] for turn in trajectory if turn.get("role") == "ai" and "mask" in turn]
    counts.labels += bool(info.get("exit_status") or document.get("exit_status")) + len(masks)
    values = [record[key] for record in (document, info) for key in ("target", "resolved", "score") if key in record]
    counts.rewards += [float(value) for value in values]
