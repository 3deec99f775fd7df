"""Files of the Agent Data Protocol, counted on the raw JSON."""

import json
from pathlib import Path

from tests.ingest.counting import Counts

FORMAT = "adp"
SAMPLES = ("adp/std/*.json", "adp/raw/webarena*")
CALLS = ("api_action", "code_action")


def count(path: Path) -> Counts:
    counts = Counts(0, 0, 0, 0, 0, 0, 0, [], 0, 0, 0)
    text = path.read_text(errors="surrogatepass")
    for row in json.loads(text) if text.startswith("[") else map(json.loads, text.splitlines()):
        if isinstance(row, dict) and isinstance(row.get("content"), list):
            counts.runs += 1
            _count(row, counts)
        elif isinstance(row, dict) and "trajectory" in row:
            counts.runs += 1
            _count_web(row, counts)
    return counts


def _count(row, counts):
    details = row["details"] if isinstance(row.get("details"), dict) else {}
    counts.rewards += [float(details["score"])] if "score" in details else []
    counts.labels += isinstance(details.get("resolved"), bool)
    open_calls = 0
    for item in row["content"]:
        kind = item.get("class_", "") if isinstance(item, dict) else ""
        text = item.get("content") or "" if isinstance(item, dict) else ""
        if kind == "message_action":
            counts.messages += 1
            counts.steps += 1
            counts.characters += len(text)
            counts.reasoning += bool(item.get("description") is not None or item.get("reasoning_content") is not None)
        elif kind in CALLS and (kind == "code_action" or "function" in item):
            counts.messages += 1
            counts.steps += 1
            counts.tool_calls += 1
            counts.characters += len(item.get("description") or "")
            counts.reasoning += item.get("reasoning_content") is not None
            open_calls += 1
        elif kind.endswith("_observation"):
            counts.messages += 1
            environment = item.get("source", "environment") == "environment" and item.get("name") != "system"
            answers = item.get("tool_call_id") is not None or (environment and open_calls > 0)
            counts.tool_results += answers
            open_calls -= answers
            if kind == "web_observation":
                text = _page(item)
            elif kind == "image_observation":
                text = json.dumps(item.get("annotations"), separators=(",", ":")) if item.get("annotations") else ""
            elif kind == "json_observation":
                text = json.dumps(text, separators=(",", ":"))
            counts.characters += len(text)
        if kind and isinstance(item.get("reward"), (int, float)):
            counts.rewards.append(float(item["reward"]))


def _page(item):
    kept = {name: item[name] for name in ("url", "axtree", "html", "viewport_size") if item.get(name) is not None}
    return json.dumps(kept, ensure_ascii=False, separators=(",", ":"))


def _count_web(row, counts):
    counts.messages += 1
    counts.characters += len(row["intent"])
    acted = 0
    for item in row["trajectory"]:
        counts.messages += 1
        if "action" in item:
            counts.steps += 1
            counts.tool_calls += 1
            counts.reasoning += "cot" in item.get("metadata", {})
            counts.characters += len(item["action"].get("raw_prediction") or "")
            acted += 1
        else:
            counts.tool_results += acted > 0
            acted -= acted > 0
            counts.characters += len(_page(item))
