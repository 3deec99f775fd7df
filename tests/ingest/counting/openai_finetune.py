"""OpenAI's fine-tuning files, counted on the raw JSON."""

import json
from pathlib import Path

from tests.ingest.counting import Counts

FORMAT = "openai-fine-tuning"
SAMPLES = ("openai_finetune/*.jsonl",)


def count(path: Path) -> Counts:
    counts = Counts(0, 0, 0, 0, 0, 0, 0, [], 0, 0, 0)
    for line in path.read_text(errors="surrogatepass").splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if not isinstance(row, dict) or not ("messages" in row or "preferred_output" in row):
            continue
        counts.runs += 1
        said = row.get("messages") or row["input"]["messages"]
        for part in (said, row.get("preferred_output"), row.get("non_preferred_output")):
            messages = [each for each in part or [] if isinstance(each, dict)]
            counts.messages += len(messages)
            for message in messages:
                _count(message, counts)
        counts.labels += "preferred_output" in row
    return counts


def _count(message, counts):
    reply = message.get("role") == "assistant"
    counts.steps += reply
    counts.tool_results += message.get("role") in ("tool", "function")
    counts.tool_calls += len([each for each in message.get("tool_calls") or [] if "name" in each.get("function", {})])
    counts.tool_calls += isinstance(message.get("function_call"), dict)
    counts.labels += reply and "weight" in message
    content = message.get("content")
    if isinstance(content, list):
        counts.reasoning += any(part["type"] == "thinking" for part in content)
        content = "".join(part.get("text", "") for part in content)
    counts.reasoning += "reasoning_content" in message
    counts.characters += len(message.get("refusal", "") if content is None else content)
