"""Answers with ids, counted on the raw JSON."""

import json
from pathlib import Path

from tests.ingest.counting import Counts

FORMAT = "token-ids"
SAMPLES = ("token_ids/derived*.json", "token_ids/*test_data.json")
TEXTS = ("response", "completion", "text")


def count(path: Path) -> Counts:
    counts = Counts(0, 0, 0, 0, 0, 0, 0, [], 0, 0, 0)
    text = path.read_text()
    try:
        values = json.loads(text)
    except ValueError:
        values = [json.loads(line) for line in text.splitlines()]
    for value in values if isinstance(values, list) else [values]:
        _value(value, counts)
    return counts


def _ids(values):
    return len(values) if all(type(each) is int and each >= 0 for each in values or [None]) else 0


def _said(content, counts):
    counts.messages += 1
    counts.characters += len(content or "")


def _value(value, counts):
    if "trajectories" in value or "trajectory" in value:
        for each in value.get("trajectories", [value]):
            if isinstance(each, dict):
                _rollout(each, counts)
                counts.labels += "is_correct" in value
        return
    if isinstance(value.get("response"), list):
        for each in value["response"]:
            if isinstance(each, dict):
                _value({"request": value["request"], "response": each}, counts)
        return
    request, answer = value.get("request", {}), value.get("response", value)
    if isinstance(answer, dict) and "meta_info" in answer:
        counts.runs += 1
        counts.steps += 1
        _said(answer["text"], counts)
        if "text" in request:
            _said(request["text"], counts)
        pairs = answer["meta_info"].get("output_token_logprobs")
        if pairs is None:
            counts.sampled_ids += len(answer["output_ids"])
        elif all(isinstance(pair, list) for pair in pairs):
            counts.sampled_ids += len(pairs)
            counts.logprobs += len(pairs)
    elif isinstance(answer, dict) and "choices" in answer:
        counts.runs += 1
        for message in request.get("messages", []):
            _said(message["content"], counts)
        for choice in answer["choices"]:
            counts.steps += 1
            _said(choice["text"] if "text" in choice else choice["message"]["content"], counts)
            if "meta_info" in choice:
                counts.sampled_ids += len(choice["meta_info"]["output_token_logprobs"])
                counts.logprobs += len(choice["meta_info"]["output_token_logprobs"])
                continue
            counts.sampled_ids += _ids(choice["token_ids"])
            counts.logprobs += len((choice["logprobs"] or {}).get("content", []))
    elif "response_length" in value:
        counts.runs += 1
        counts.steps += 1
        _said(value["prompt"], counts)
        _said(value["response"], counts)
        counts.sampled_ids += value["response_length"]
        counts.logprobs += len(value["rollout_log_probs"])
        counts.rewards.append(float(value["reward"]))
    elif "prompt_ids" in value or "prompt_token_ids" in value or "input_ids" in value:
        _flat(value, counts)
    else:
        for each in value.values():
            if isinstance(each, dict):
                _conversation(each, counts)


def _rollout(rollout, counts):
    counts.runs += 1
    calls = rollout.get("steps") or rollout["trajectory"]
    counts.steps += len(calls)
    for row in (rollout, *calls):
        counts.rewards += [row["reward"]] if isinstance(row.get("reward"), float) else []
    # The last call shows all that was said before it.
    last = calls[-1]
    said = last.get("chat_completions") or [*last["prompt"], *last["completion"]] if "response" not in last else None
    for message in said or [{"content": last["prompt"]}, {"content": last["response"]}]:
        _said(message["content"], counts)
        counts.tool_calls += len(message.get("tool_calls") or [])
        counts.tool_results += message.get("role") == "tool"
    for row in calls:
        tokens = row.get("tokens", row)
        counts.sampled_ids += len(tokens.get("response_ids") or tokens["completion_ids"])
        counts.logprobs += len(tokens.get("logprobs") or tokens.get("completion_logprobs", []))


def _flat(row, counts):
    counts.runs += 1
    counts.steps += 1
    for name in TEXTS:
        if name in row:
            _said(row[name], counts)
    for message in [{"content": row["prompt"]}] if isinstance(row.get("prompt"), str) else row.get("prompt", []):
        _said(message["content"], counts)
    counts.sampled_ids += _ids(next(row[name] for name in row if name[:4] in ("resp", "comp", "outp")
                                    and name.endswith("ids")))  # fmt: skip
    counts.logprobs += len(row.get("response_logprobs", []))
    counts.rewards += [float(row[name]) for name in ("reward", "score") if name in row]


def _conversation(value, counts):
    counts.runs += 1
    counts.rewards += [value["reward"]] if "reward" in value else []
    if value.get("instructions"):
        _said(value["instructions"], counts)
    open_ = False
    for item in value.get("messages") or value["output"]:
        kind = item.get("type", "message")
        reply = kind in ("reasoning", "function_call") or item.get("role") == "assistant"
        if not (reply and open_):
            counts.messages += 1
            counts.steps += reply
        open_ = reply and "generation_token_ids" not in item and "messages" not in value
        text = item.get("output", item.get("content")) or ""
        counts.characters += len(text) if isinstance(text, str) else sum(len(part["text"]) for part in text)
        counts.tool_results += item.get("role") == "tool" or kind == "function_call_output"
        counts.tool_calls += len(item.get("tool_calls") or []) + (kind == "function_call")
        counts.reasoning += kind == "reasoning" or "reasoning" in item
        counts.sampled_ids += len(item.get("generation_token_ids") or [])
        counts.logprobs += len(item.get("generation_log_probs") or [])
