"""Rows of ShareGPT's family, counted on the raw JSON."""

import json
from pathlib import Path

from tests.ingest.counting import Counts

FORMAT = "sharegpt"
SAMPLES = (
    "sharegpt/*_demo*",
    "sharegpt",
    "agentinstruct/*.json",
    "adp/sft/*.json",
    "adp/raw/agenttuning_alfworld*",
    "adp/raw/code_feedback*",
    "adp/raw/llava_plus*",
    "adp/raw/mini-coder*",
    "hermes_function_calling/few_shot.json",
)
TALKS = ("conversations", "messages", "dialog")
REPLIES = ("assistant", "gpt", "function_call", "host", "host calls")


def count(path: Path) -> Counts:
    counts = Counts(0, 0, 0, 0, 0, 0, 0, [], 0, 0, 0)
    for file in sorted(path.iterdir()) if path.is_dir() else [path]:
        for row in _rows(file):
            if isinstance(row, dict) and file.name != "dataset_info.json" and _turns(row)[0]:
                counts.runs += 1
                _count(row, counts)
    return counts


def _rows(file):
    text = file.read_text(errors="surrogatepass")
    try:
        value = json.loads(text)
    except ValueError:
        value = []
        for line in text.splitlines():
            try:
                value.append(json.loads(line))
            except ValueError:
                continue
    return value if isinstance(value, list) else [value]


def _turns(row):
    """The turns of a row, those of both answers of a pair after what they have in common, and how many pairs."""
    turns = [{"role": "system", "content": row["system"]}] if row.get("system") else []
    said = next((row[name] for name in TALKS if name in row), None)
    if said is None and "example" in row:
        return turns + _dialogue(row["example"]), 0
    if said is None and "question" in row:  # as the description of the data set says
        said = [{"role": "user", "content": row["question"]}, {"role": "assistant", "content": row["answer"]}]
    if said is None:
        said = [each for pair in row.get("history", []) for each in _pair(*pair)]
        asked = row.get("prompt", row.get("instruction"))
        if isinstance(asked, list):
            said = said + asked
        elif asked is not None:
            text = "\n".join(part for part in (asked, row.get("input")) if part)
            said = [*said, {"role": "user", "content": text}]
        answer = row.get("completion", row.get("output", row.get("response")))
        if answer is not None:
            said = said + (answer if isinstance(answer, list) else [{"role": "assistant", "content": answer}])
    if "chosen_messages" in row:
        good, bad = row["chosen_messages"], row["rejected_messages"]
    elif "chosen" in row:
        good, bad = row["chosen"], row["rejected"]
    else:
        return turns + said, 0
    good, bad = ([each] if isinstance(each, dict) else each for each in (good, bad))
    good, bad = ([{"role": "assistant", "content": each}] if isinstance(each, str) else each for each in (good, bad))
    same = 0
    if not said:
        while good[same] == bad[same]:
            same += 1
    return turns + said + good + bad[same:], 1


def _pair(question, answer):
    return {"role": "user", "content": question}, {"role": "assistant", "content": answer}


def _dialogue(text):
    turns = []
    for line in text.strip("`\n").splitlines():
        role, colon, rest = line.partition(":")
        if colon and role in ("SYSTEM", "USER", "ASSISTANT"):
            turns.append({"role": role.lower(), "content": rest.strip()})
        else:
            turns[-1]["content"] += f"\n{line}"
    return [{**turn, "content": turn["content"].strip("\n ")} for turn in turns]


def _count(row, counts):
    turns, pairs = _turns(row)
    counts.labels += pairs + sum(isinstance(row.get(name), bool) for name in ("label", "verified"))
    counts.rewards += [float(row[name]) for name in ("reward", "score") if name in row]
    media = any(row.get(name) for name in ("images", "image"))
    for turn in turns:
        if not isinstance(turn, dict):
            continue
        role = turn.get("from", turn.get("role"))
        text = turn.get("value", turn.get("content"))
        reply = role in REPLIES
        weighed = any(turn.get(name) is not None for name in ("loss", "loss_weight"))
        counts.labels += reply and weighed
        counts.steps += reply
        counts.reasoning += "thoughts" in turn or "reasoning_content" in turn
        counts.tool_calls += len(turn.get("actions", [])) + len(turn.get("tool_calls", []))
        messages = 1
        if isinstance(text, dict):
            text = json.dumps(text, separators=(",", ":"))  # kept as text
        if isinstance(text, list):
            calls = [part for part in text if part["type"] == "tool_call"]
            counts.tool_calls += len(calls)
            text = "".join(part["value"] for part in text if part["type"] == "text")
        elif role in ("function_call", "host calls"):
            try:
                called = json.loads(text)
                counts.tool_calls += len(called) if isinstance(called, list) else 1
                text = ""
            except ValueError:
                pass
        elif reply and "<tool_call>" in (text or ""):
            pieces = text.split("<tool_call>")
            counts.tool_calls += len(pieces) - 1
            text = "".join([pieces[0], *(piece.split("</tool_call>")[1] for piece in pieces[1:])]).strip()
        elif role == "tool" and "<tool_response>" in text:
            results = [piece.split("</tool_response>")[0] for piece in text.split("<tool_response>")[1:]]
            messages, text = len(results), "".join(result.strip("\n") for result in results)
        counts.tool_results += messages * (role in ("tool", "observation", "world"))
        counts.messages += messages
        text = text or ""
        counts.characters += len(text.replace("<image>", "") if media else text)
