"""Scores of Inspect -> rewards: numbers as they are, letters as Inspect counts them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentworld.ingest.formats.noted import Values, as_finite
from agentworld.ingest.formats.outcomes import put_value
from agentworld.ingest.run import Run, RunFeedback, RunReward

LETTERS = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
"""Correct, partially correct, incorrect, no answer."""
_WORDS = {"yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}
_SAID = ("answer", "explanation", "metadata")


def put_scores(run: Run, sample: Mapping[str, Any], values: Values, place: str) -> None:
    """Put all scores of a sample; each scorer's under its name."""
    scores = values.object(sample, "scores", place)
    if scores is None and sample.get("score") is not None:
        scores = {"score": sample["score"]}
    for name, score in (scores or {}).items():
        where = f"{place}.scores.{name}"
        if isinstance(score, dict):
            put_score(run, name, score, values, where)
        else:
            values.lost(where, "a score must be an object with a value")


def put_score(
    run: Run, name: str, score: Mapping[str, Any], values: Values, place: str, step: str | None = None
) -> None:
    """Put one score; of an object or a list of values, each under its own name."""
    value = score.get("value")
    details = {key: score[key] for key in _SAID if score.get(key) not in (None, "", {})}
    if isinstance(value, str):
        details = {"value": value, **details}
    kept = values.bounded(details, place) if details else None
    if isinstance(value, dict):
        for key, each in value.items():
            _put(run, f"{name}.{key}", each, kept, values, f"{place}.value.{key}", step)
    elif isinstance(value, list):
        for number, each in enumerate(value):
            _put(run, f"{name}[{number}]", each, kept, values, f"{place}.value[{number}]", step)
    elif value is None:
        values.lost(f"{place}.value", "the score has no value, or one that is no finite number")
    else:
        _put(run, name, value, kept, values, place, step)


def _put(run: Run, name: str, value: Any, details: Any, values: Values, place: str, step: str | None) -> None:
    number = number_of(value)
    if number is not None:
        run.rewards.append(RunReward(name=values.short(name, place), value=number, step=step, details=details))
    elif isinstance(value, str):
        run.feedback.append(RunFeedback(kind="label", name=values.short(name, place), value=value[:1000], step=step))
    elif value is not None:
        put_value(run, name, value, values, place, details)


def number_of(value: Any) -> float | None:
    """A value as a number, as Inspect's own metrics count it; None for other texts."""
    if isinstance(value, bool):
        return 1.0 if value else 0.0
    if isinstance(value, str):
        if value in LETTERS:
            return LETTERS[value]
        if value.lower() in _WORDS:
            return _WORDS[value.lower()]
        try:
            return as_finite(float(value)) if value.isascii() and len(value) <= 40 else None
        except ValueError:
            return None
    return as_finite(value)
