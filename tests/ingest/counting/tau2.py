"""tau2's simulations, counted on the raw JSON."""

import json
from pathlib import Path

from tests.ingest.counting import Counts

FORMAT = "tau2"
SAMPLES = ()


def count(path: Path) -> Counts:
    counts = Counts(0, 0, 0, 0, 0, 0, 0, [], 0, 0, 0)
    for file in [path] if path.is_file() else sorted(path.glob("simulations/*.json")):
        text = file.read_text()
        try:
            value = json.loads(text)
            found = value.get("simulations", [value])
        except ValueError:
            found = [json.loads(line) for line in text.splitlines()]
        for each in found:
            if each.get("ticks"):
                spoken(each["ticks"], counts)
            elif "messages" in each:
                simulation(each, counts)
    return counts


def simulation(record, counts):
    """Everybody's turns; steps are the agent's, but for the greeting that no model wrote."""
    counts.runs += 1
    counts.labels += 1
    turns = []
    for item in record["messages"] or []:
        if isinstance(item, dict):
            turns += item.get("tool_messages", [item])
    for number, turn in enumerate(turns):
        counts.messages += 1
        counts.tool_results += turn["role"] == "tool"
        counts.tool_calls += len(turn.get("tool_calls") or [])
        counts.characters += len(turn["content"] or "")
        raw = turn.get("raw_data") or {}
        if turn["role"] == "assistant":
            counts.steps += number > 0 or bool(turn.get("usage"))
            for choice in raw.get("choices", []):
                message = choice["message"]
                counts.reasoning += any(message.get(key) is not None for key in ("reasoning_content", "reasoning"))
                counts.sampled_ids += len(choice.get("token_ids") or [])
                counts.logprobs += len((choice.get("logprobs") or {}).get("content") or [])
    if info := record["reward_info"]:
        counts.rewards += [info["reward"], *(info.get("reward_breakdown") or {}).values()]


def spoken(ticks, counts):
    """What both said, by utterance; calls go with what was said last."""
    counts.runs += 1
    counts.labels += 1
    for speaker in ("agent", "user"):
        pieces = [tick[f"{speaker}_chunk"] for tick in ticks if (tick.get(f"{speaker}_chunk") or {}).get("content")]
        utterances = {piece["utterance_ids"][0] for piece in pieces}
        counts.messages += len(utterances)
        counts.steps += len(utterances) * (speaker == "agent")
        counts.characters += sum(len(piece["content"]) for piece in pieces)
        for tick in ticks:
            counts.tool_calls += len(tick.get(f"{speaker}_tool_calls", ()))
            results = tick.get(f"{speaker}_tool_results", ())
            counts.messages += len(results)
            counts.tool_results += len(results)
            counts.characters += sum(len(result["content"]) for result in results)
