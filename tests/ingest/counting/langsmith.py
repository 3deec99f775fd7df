"""LangSmith's runs, counted on the raw JSON."""

from pathlib import Path

from tests.ingest.counting import Counts
from tests.ingest.counting.langfuse import documents
from tests.ingest.trees import Tree, shaped

FORMAT = "langsmith"
SAMPLES = ("langsmith/*.json",)


def count(path: Path) -> Counts:
    counts = Counts(0, 0, 0, 0, 0, 0, 0, [], 0, 0, 0)
    runs, feedback = {}, []
    for document in documents(path):
        if isinstance(document, list) or "key" in document:
            feedback += [document] if "key" in document else []
            continue
        for run in [*document.get("post", []), *document.get("patch", [])] or _within(document):
            own = run["dotted_order"].split(".")[-1].split("Z", 1)[1]
            told = {name: value for name, value in run.items() if value}
            runs.setdefault(own, {}).update(told)
    traces = {}
    for run in runs.values():
        traces.setdefault(run["dotted_order"].split(".")[0].split("Z", 1)[1], []).append(run)
    for trace in traces.values():
        _count(trace, counts)
    for run in runs.values():
        for stats in run.get("feedback_stats", {}).values():
            counts.rewards += [stats["avg"]] if stats["avg"] is not None else []
            counts.labels += stats["avg"] is None
    for each in feedback:
        if each["run_id"] in runs:
            counts.rewards += [each["score"]] if each["score"] is not None else []
            counts.labels += each["score"] is None
    return counts


def _within(run):
    return [run, *(found for child in run.get("child_runs", []) for found in _within(child))]


def _count(runs, counts):
    tree = Tree()
    for run in sorted(runs, key=lambda run: str(run["start_time"])):
        if run["run_type"] == "llm" and "outputs" in run:
            messages = run["inputs"]["messages"]
            messages = messages[0] if isinstance(messages[0], list) else messages
            prompt = [one for message in messages for one in shaped(message)]
            choices = run["outputs"].get("choices") or run["outputs"]["generations"][0]
            for choice in choices:
                tree.step(prompt, shaped(choice["message"])[0])
    for run in runs:
        if run["run_type"] == "tool":
            said = run["outputs"]["output"]
            said = said.get("kwargs", said)
            tree.result(said["tool_call_id"], said["content"], called=False)
    counts.runs += bool(tree.steps)
    tree.into(counts)
