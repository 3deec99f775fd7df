"""mini-swe-agent's trajectories, counted on the raw JSON."""

import json
from pathlib import Path

from tests.ingest.counting import Counts

FORMAT = "mini-swe-agent"
SAMPLES = ("mini_swe_agent/*.json",)


def count(path: Path) -> Counts:
    document = json.loads(path.read_text())
    document = document if isinstance(document, dict) else {"messages": document}
    counts = Counts(1, 0, 0, 0, 0, 0, 0, [], 0, 0, 0)
    info = document.get("info", {})
    counts.labels += bool(info.get("exit_status"))
    counts.rewards += [float(document[key]) for key in ("resolved", "reward") if key in document]
    for message in document["messages"]:
        counts.messages += 1
        if "output" in message and "call_id" not in message:
            items = message["output"]
            counts.steps += 1
            counts.tool_calls += sum(item["type"] == "function_call" for item in items)
            counts.reasoning += any(item["type"] == "reasoning" for item in items)
            counts.characters += sum(len(part["text"]) for item in items for part in item.get("content", ()))
            continue
        text = message.get("output", message.get("content")) or ""
        counts.characters += len(text) if isinstance(text, str) else sum(len(part["text"]) for part in text)
        counts.steps += message.get("role") == "assistant"
        counts.tool_results += message.get("role") == "tool" or "call_id" in message
        counts.tool_calls += len(message.get("tool_calls") or [])
        counts.reasoning += "reasoning_content" in message
        answer = message.get("extra", {}).get("response", {})
        for choice in answer["choices"] if isinstance(answer, dict) and "choices" in answer else []:
            if message["role"] != "assistant":
                counts.steps += 1
                counts.messages += 1
                counts.characters += len(choice["message"]["content"])
            counts.sampled_ids += len(choice.get("token_ids") or [])
            counts.logprobs += len((choice.get("logprobs") or {}).get("content", []))
    return counts
