"""ATIF, counted on the raw JSON."""

import json
import re
from pathlib import Path

from tests.ingest.counting import Counts

FORMAT = "atif"
SAMPLES = ("atif/*.json", "atif")


def count(path: Path) -> Counts:
    counts = Counts(0, 0, 0, 0, 0, 0, 0, [], 0, 0, 0)
    documents = []
    for file in sorted(each for each in path.rglob("*") if each.is_file()) if path.is_dir() else [path]:
        documents += [(file, document) for document in _documents(file.read_text(errors="surrogatepass"))]
        if file.name == "result.json" and (file.parent / "agent").is_dir() and any((file.parent / "agent").iterdir()):
            counts.rewards += _rewards(json.loads(file.read_text())["verifier_result"] or {})
    parents = [_parent(document, file, documents) for file, document in documents]
    for number in range(len(documents)):
        root = number
        while parents[root] is not None:
            root = parents[root]
        if root == number:
            counts.runs += 1
            trie = {}
            for other, (_, each) in enumerate(documents):
                above = other
                while parents[above] is not None:
                    above = parents[above]
                if above == number:
                    _count(each, counts, trie)
    return counts


def _documents(text):
    try:
        values = [json.loads(text)]
    except ValueError:
        values = []
        for line in text.splitlines():
            try:
                values.append(json.loads(line))
            except ValueError:
                continue
    found = []
    for value in values:
        if isinstance(value, list):
            found += value
        elif isinstance(value, dict) and "steps" not in value:
            found += value.values()
        else:
            found.append(value)
    return [each for each in found if isinstance(each, dict) and isinstance(each.get("steps"), list)]


def _references(document):
    steps = [step for step in document["steps"] if isinstance(step, dict)]
    for step in steps:
        observation = step.get("observation")
        for result in observation.get("results", []) if isinstance(observation, dict) else []:
            if isinstance(result, dict):
                yield from result.get("subagent_trajectory_ref") or []


def _parent(document, file, documents):
    """The document that names this one."""
    for number, (_, other) in enumerate(documents):
        if other is document:
            continue
        ahead = other.get("continued_trajectory_ref")
        if ahead and (file.name == Path(ahead).name or _goes_on(document, other, ahead)):
            return number
        for reference in _references(other):
            path, run = reference.get("trajectory_path"), reference.get("session_id")
            if path and Path(path).name == file.name:
                return number
            if run and run == document.get("session_id") and run != other.get("session_id"):
                return number
    return None


def _goes_on(document, other, ahead):
    found = re.search(r"cont-(\d+)", ahead)
    begin = str(other.get("session_id")).split("-cont-")[0]
    return found and document.get("session_id") == f"{begin}-cont-{found[1]}"


def _rewards(extra):
    named = extra.get("rewards") if isinstance(extra.get("rewards"), dict) else {}
    values = [*([extra["reward"]] if "reward" in extra else []), *named.values()]
    return [float(value) for value in values if type(value) in (int, float) and abs(value) < 1e300]


def _count(document, counts, trie):
    counts.rewards += _rewards(document.get("extra") or {})
    said = []  # (what, whether it is a reply)
    for step in document["steps"]:
        if not isinstance(step, dict):
            continue
        copied = step.get("is_copied_context") or step.get("llm_call_count") == 0
        calls = [call for call in step.get("tool_calls") or [] if "function_name" in call]
        reply = step["source"] == "agent" and not copied
        said.append((_message(step, calls), reply))
        if reply:
            counts.steps += 1
            metrics = step.get("metrics") or {}
            ids = metrics.get("completion_token_ids") or []
            counts.sampled_ids += len(ids) if all(type(each) is int and each >= 0 for each in ids) else 0
            counts.logprobs += len(metrics.get("logprobs") or [])
            counts.rewards += _rewards(step.get("extra") or {})
        observation = step.get("observation") or {}
        for result in observation.get("results", []):
            if "content" in result or result.get("source_call_id"):
                said.append((_result(result, calls), False))
    replies = [place for place, (_, reply) in enumerate(said) if reply]
    last = replies[-1] if replies else -1
    node = trie
    for place, (what, reply) in enumerate(said):
        key = json.dumps(what, sort_keys=True)
        if place > last or reply or key not in node:
            counts.messages += 1
            counts.tool_calls += len(what["calls"])
            counts.tool_results += what["role"] == "tool"
            counts.reasoning += what["reasoning"] is not None
            counts.characters += len(what["text"])
        if place <= last:
            node = node.setdefault(key, {})
    for each in document.get("subagent_trajectories") or []:
        _count(each, counts, trie)


def _text(content):
    if isinstance(content, list):
        return "".join(part.get("text") or "" for part in content)
    if isinstance(content, dict):
        return json.dumps(content, separators=(",", ":"))  # not of the format: kept as text
    return content or ""


def _message(step, calls):
    named = [[call.get("tool_call_id"), call["function_name"], call.get("arguments")] for call in calls]
    text = _text(step.get("message"))
    return {"role": step["source"], "text": text, "reasoning": step.get("reasoning_content"), "calls": named}


def _result(result, calls):
    role = "tool" if calls or result.get("source_call_id") else "user"
    text = _text(result.get("content"))
    return {"role": role, "text": text, "id": result.get("source_call_id"), "reasoning": None, "calls": []}
