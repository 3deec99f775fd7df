"""ToolBench's and ToolEval's answers, counted on the raw JSON."""

import json
import re
from pathlib import Path

from tests.ingest.counting import Counts

FORMAT = "toolbench"
SAMPLES = ("toolbench/*.json",)


def count(path: Path) -> Counts:
    counts = Counts(0, 0, 0, 0, 0, 0, 0, [], 0, 0, 0)
    value = json.loads(path.read_text(errors="surrogatepass"))
    if "answer_generation" in value:
        _count_tree(value, counts)
    else:
        counts.characters = None  # of texts that the file cuts off
        for answer in value.values():
            if isinstance(answer, dict):
                counts.runs += 1
                for node in answer["answer"]["answer_details"]:
                    _count_evaluated(node, counts)
    return counts


def _count_tree(value, counts):
    about = value["answer_generation"]
    counts.runs += 1
    counts.labels += isinstance(value.get("win"), bool)
    talks = about.get("train_messages") or [[{"role": "user", "content": about["query"]}]]
    if "tree" in value:
        for message in talks[0]:
            if message["role"] == "assistant":
                break
            counts.messages += 1
            counts.characters += len(message["content"])
        _count_node(value["tree"]["tree"], 0, counts)
        return
    trie = {}
    for talk in talks:
        node = trie
        for message in talk:
            key = json.dumps(message, sort_keys=True)
            if key not in node:
                counts.messages += 1
                counts.steps += message["role"] == "assistant"
                counts.tool_calls += "function_call" in message
                counts.tool_results += message["role"] == "function"
                counts.characters += len(message.get("content") or "")
            node = node.setdefault(key, {})


def _count_node(node, thought, counts):
    """`thought`: how many characters were thought since the last call, and are said with each call that follows."""
    children = [child for child in node.get("children", []) if isinstance(child, dict)]
    kind, text = node["node_type"], node.get("description") or ""
    top = "observation" not in node and kind == "Action Input"
    if "Action" not in kind:
        # Two thoughts of one reply stand on lines of their own.
        thought = thought + (thought > 0) + len(text)
    if (kind == "Action Input" and not top) or (kind != "Action Input" and not children):
        counts.steps += 1
        counts.messages += 1
        counts.characters += thought
        thought = 0
        counts.tool_calls += "Action" in kind
    if node.get("observation") is not None:
        counts.messages += 1
        counts.tool_results += 1
        counts.characters += len(node["observation"])
    for child in children:
        _count_node(child, thought, counts)


def _count_evaluated(node, counts):
    role, text = node.get("role"), node.get("message") or ""
    after = node.get("next", [])
    if role == "tool":
        counts.messages += 1
        counts.steps += 1
        counts.tool_calls += re.match(r"\{'name': ('[^']*'|\"[^\"]*\")", text) is not None
        response = re.search(r"(?<!\\)['\"], 'response': ['\"](.?)", text, re.DOTALL)
        answered = response is not None and (response[1] not in ("'", "") or "'name': 'Finish'" not in text)
        counts.messages += answered
        counts.tool_results += answered
    elif role == "assistant" and not (len(after) == 1 and after[0].get("role") == "tool"):
        counts.messages += 1
        counts.steps += 1
    elif role in ("system", "user"):
        counts.messages += 1
    for each in after:
        _count_evaluated(each, counts)
