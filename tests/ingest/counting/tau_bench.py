"""tau-bench's results and displays, counted on the raw JSON."""

import json
import re
from pathlib import Path

from tests.ingest.counting import Counts

FORMAT = "tau-bench"
SAMPLES = ("tau_bench/*.jsonl",)


def count(path: Path) -> Counts:
    counts = Counts(0, 0, 0, 0, 0, 0, 0, [], 0, 0, 0)
    text = path.read_text()
    rows = json.loads(text) if text.startswith("[") else [json.loads(line) for line in text.splitlines()]
    for row in rows:
        if isinstance(row.get("messages_display"), str):
            counts.runs += 1
            _display(row["messages_display"], counts)
        elif "traj" in row:
            counts.runs += 1
            for message in row["traj"]:
                if isinstance(message, dict):
                    _message(message, counts)
            if isinstance(row["reward"], float):
                counts.rewards.append(row["reward"])
            else:
                counts.labels += 1
    return counts


def _message(message, counts):
    counts.messages += 1
    counts.steps += message["role"] == "assistant"
    counts.tool_results += message["role"] == "tool"
    counts.tool_calls += len(message.get("tool_calls") or [])
    counts.characters += len(message["content"] or "")


def _display(text, counts):
    """Lines that begin with a role begin a turn."""
    turns = []
    for line in text.split("\n"):
        if found := re.match(r"(user|assistant|tool|system): ?(.*)", line, re.DOTALL):
            turns.append([found[1], found[2]])
        elif turns:
            turns[-1][1] += "\n" + line
    for role, said in turns:
        counts.messages += 1
        counts.steps += role == "assistant"
        counts.tool_results += role == "tool"
        counts.characters += 0 if (role, said) == ("assistant", "None") else len(said)
