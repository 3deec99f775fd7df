"""What Harbor says of a trial in the `result.json` beside its trajectories: rewards, how it ended, and its task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentworld.ingest.entry import Entry
from agentworld.ingest.formats.atif_document import rewards_of
from agentworld.ingest.formats.noted import Values
from agentworld.ingest.run import Run

_NAME = "result.json"
_USUAL = "trajectory.json"
_ABOUT = ("trial_name", "task_name", "source", "started_at", "finished_at")


def is_trial(value: Any) -> bool:
    """Whether it is the result of a trial."""
    return isinstance(value, dict) and "verifier_result" in value and not {"trial_name", "task_name"}.isdisjoint(value)


def is_result(entry: Entry) -> bool:
    """Whether an entry may be the result of a trial, by its name."""
    return _base(entry) == _NAME


def with_results(bundles: list[list[Entry]], results: Sequence[Entry]) -> list[list[Entry]]:
    """The bundles, each result put behind that of its trial: in its folder or in one below, and there the one that has
    the usual name. A result without one stands alone.
    """
    alone: list[list[Entry]] = []
    for result in results:
        folder = _folder(result)
        near = [bundle for bundle in bundles if folder in (_folder(bundle[0]), _folder(bundle[0]).rpartition("/")[0])]
        chosen = next((bundle for bundle in near if any(_base(entry) == _USUAL for entry in bundle)), None)
        if chosen is None and near:
            chosen = near[0]
        if chosen is None:
            alone.append([result])
        else:
            chosen.append(result)
    return bundles + alone


def tell(run: Run, trial: dict[str, Any], values: Values) -> None:
    """Put what is said of the trial on its run."""
    verified = values.object(trial, "verifier_result", "$") or {}
    given = verified.get("rewards")
    found = {"rewards": given} if isinstance(given, dict) else {"reward": given} if given is not None else {}
    run.rewards += rewards_of(values, found, "$.verifier_result", None)
    exception = values.object(trial, "exception_info", "$")
    about = {name: trial[name] for name in _ABOUT if isinstance(trial.get(name), str)}
    if exception is not None:
        kind = exception.get("exception_type")
        about["exception"] = kind if isinstance(kind, str) else "unknown"
        run.status = "truncated" if "Timeout" in about["exception"] else "failed"
    if "task_name" in about and run.task is None:
        run.task = {"task_id": about["task_name"]}
    run.metadata["trial"] = values.bounded(about, "$") or {}


def _base(entry: Entry) -> str:
    return entry.name.rpartition("/")[2]


def _folder(entry: Entry) -> str:
    return entry.name.rpartition("/")[0]
