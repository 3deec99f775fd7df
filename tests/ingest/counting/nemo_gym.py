"""NeMo-Gym's rollouts, counted on the raw JSON."""

import json
from pathlib import Path

from tests.ingest.counting import Counts, tau2

FORMAT = "nemo-gym"
SAMPLES = ("nemo_gym_rollouts/*.jsonl", "tau2_bench/*.jsonl", "token_ids/*rollouts.jsonl")


def count(path: Path) -> Counts:
    counts = Counts(0, 0, 0, 0, 0, 0, 0, [], 0, 0, 0)
    for line in path.read_text().splitlines():
        row = json.loads(line)
        if "response" not in row:
            continue
        counts.labels += sum(isinstance(row.get(name), bool) for name in ("resolved", "mask_sample"))
        asked = row["responses_create_params"]
        if "result" in row:
            tau2.simulation(row["result"], counts)
            for item in asked["input"]:
                if item.get("role") != "system":
                    break
                counts.messages += 1
                counts.characters += len(item["content"])
            continue
        counts.runs += 1
        names = [name for name in row if name == "reward" or name.endswith(("_reward", "_score"))]
        counts.rewards += [float(row[name]) for name in names if row[name] is not None]
        given = asked["input"]
        before = [given] if isinstance(given, str) else given
        if asked["instructions"]:
            before = [asked["instructions"], *before]
        _items(before, counts, steps=False)
        _items(row["response"]["output"], counts, steps=True)
    return counts


def _items(items, counts, steps):
    """A reply ends before what is not the model's, after an item with ids, and before a second text."""
    open_, texts = False, 0
    thought = False
    for item in items:
        kind = "text" if isinstance(item, str) else item.get("type")
        if kind == "text" or (kind == "message" and item["role"] != "assistant") or kind == "function_call_output":
            open_, texts = False, 0
            counts.messages += 1
            counts.tool_results += kind == "function_call_output"
            said = item if kind == "text" else item.get("output", item.get("content"))
            counts.characters += len(said)
            continue
        if kind == "message" and texts:
            open_ = False
        if not open_:
            counts.messages += 1
            counts.steps += steps or "generation_token_ids" in item
            texts, thought = 0, False
        open_ = True
        if kind == "reasoning":
            counts.reasoning += not thought
            thought = True
        elif kind == "message":
            texts += 1
            counts.characters += sum(len(part["text"]) for part in item["content"])
        else:
            counts.tool_calls += 1
        counts.sampled_ids += len(item.get("generation_token_ids") or [])
        counts.logprobs += len(item.get("generation_log_probs") or [])
        if "generation_token_ids" in item:
            open_, texts = False, 0
