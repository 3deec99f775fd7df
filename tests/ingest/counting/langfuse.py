"""Langfuse's exports, counted on the raw JSON."""

import csv
import io
import json
from pathlib import Path

from tests.ingest.counting import Counts
from tests.ingest.trees import Tree, said, shaped

FORMAT = "langfuse"
SAMPLES = ("langfuse/*.json",)


def count(path: Path) -> Counts:
    counts = Counts(0, 0, 0, 0, 0, 0, 0, [], 0, 0, 0)
    traces = {}
    for document in documents(path):
        if "batch" in document:
            for event in document["batch"]:
                kind, body = event["type"].split("-")[0], event["body"]
                if kind == "generation":
                    known = traces.setdefault(body["traceId"], {}).setdefault(body["id"], {"type": "GENERATION"})
                    known.update(body)
                elif kind == "score":
                    _score(body, counts)
        elif "observations" in document:
            traces[document["id"]] = {each["id"]: each for each in document["observations"]}
            for score in document["scores"]:
                _score(score, counts)
        elif "data" in document:
            for score in document["data"]:
                _score(score, counts)
        elif "traceId" not in document and "observationCount" in document:
            counts.rewards += document.get("helpful", ())
        elif "traceId" in document:
            counts.rewards += [*document.get("clarity", ()), *(value == "True" for value in document.get("right", ()))]
            counts.labels += len(document.get("tone", ()))
            traces.setdefault(document["traceId"], {})[document["id"]] = document
        else:
            _messages(document, counts)
    for trace in traces.values():
        _count(trace.values(), counts)
    return counts


def documents(path):
    for file in [path] if path.is_file() else sorted(path.iterdir()):
        text = file.read_bytes().decode()
        if file.suffix == ".csv":
            for row in csv.DictReader(io.StringIO(text, newline="")):
                yield {name: _cell(cell) for name, cell in row.items() if cell}
            continue
        try:
            yield json.loads(text)
        except ValueError:
            for line in text.splitlines():
                try:
                    yield json.loads(line)
                except ValueError:
                    continue


def _cell(cell):
    return json.loads(cell) if cell[0] in "[{" else cell


def _score(score, counts):
    if score.get("dataType") == "CATEGORICAL":
        counts.labels += 1
    else:
        counts.rewards.append(score["value"])


def _count(observations, counts):
    tree = Tree()
    for each in sorted(observations, key=lambda each: each["startTime"]):
        if each["type"] == "GENERATION" and each.get("output") is not None:
            tree.step([one for message in _prompt(each["input"]) for one in shaped(message)], _reply(each["output"]))
    counts.runs += bool(tree.steps)
    tree.into(counts)


def _prompt(given):
    if isinstance(given, str) and given[:1] not in "[{":
        return [{"role": "user", "content": given}]
    given = json.loads(given) if isinstance(given, str) else given
    if isinstance(given, list):
        return given[0] if isinstance(given[0], list) else given
    system = given.get("system") or given.get("config", {}).get("system_instruction")
    return ([{"role": "system", "content": system}] if system else []) + (given.get("messages") or given["contents"])


def _reply(output):
    if isinstance(output, str):
        return said("assistant", output)
    if "generations" in output:
        output = output["generations"][0][0]["message"]
    if "candidates" in output:
        output = output["candidates"][0]["content"]
    return shaped(output)[0]


def _messages(document, counts):
    """Messages of observations alone. Whatever repeats the reply of a longer call, with a part of its prompt, is around
    it; an output that is no message is a tool's.
    """
    tree, calls, results = Tree(), [], []
    for sides in document.values():
        given, output = (sides.get(side, {}).get("data") for side in ("input", "output"))
        if given and output and "role" in output[0]:
            prompt = [message for message in given if "role" in message]
            calls.append((prompt, _named(output[0]), len(given)))
        elif output and not given:
            shown = [each["json"] for each in output if set(each) == {"json"}]
            results += [json.dumps(shown[0] if len(shown) == 1 else shown, ensure_ascii=False)] if shown else []
    calls.sort(key=lambda call: call[2])
    for prompt, reply, length in calls:
        if not any(length < more and reply[1] == other[1] and _within(prompt, rest) for rest, other, more in calls):
            tree.step([_named(message) for message in prompt], reply)
    for result in results:
        tree.result(next(iter(tree.replied)), result, called=False)
    counts.runs += 1
    tree.into(counts)


def _within(prompt, rest):
    return all(any(_named(message) == _named(other) for other in rest) for message in prompt)


def _named(message):
    calls = [(call["id"] or "call_0", call["name"]) for call in message.get("tool_calls") or []]
    role = {"model": "assistant"}.get(message["role"], message["role"])
    return said(role, message.get("content"), calls, result="call_0" if role == "tool" else None)
