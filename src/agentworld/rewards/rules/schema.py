"""Answers in JSON, checked against a JSON Schema."""

from __future__ import annotations

from importlib.util import find_spec
from itertools import islice
from typing import Annotated, Any, ClassVar, Literal

import msgspec

from agentworld.errors import ConfigError
from agentworld.records import BatchTrajectory
from agentworld.rewards.answers import AnswerPlace, extract_answer
from agentworld.rewards.isolation.children import children
from agentworld.rewards.protocol import EvaluatorKind, Verdict, last_answer

_MEMORY_MB = 1024
_DRAFT = "https://json-schema.org/draft/2020-12/schema"


class JsonSchema(EvaluatorKind, frozen=True, kw_only=True):
    """1 where the answer is JSON that the schema takes, else 0, with the faults.

    `schema`: the JSON Schema, draft 2020-12 unless it names another; references lead within it alone. `answer`: `auto`
    is the last fenced block where there is one, else the whole reply. Needs the extra `rewards`.
    """

    schema: dict[str, Any]
    answer: AnswerPlace | Literal["auto"] = "auto"
    revision: ClassVar[int] = 2
    seconds: Annotated[float, msgspec.Meta(gt=0)] = 5.0

    def __post_init__(self) -> None:
        if find_spec("jsonschema") is None:
            raise ConfigError(
                "the evaluator json_schema needs jsonschema",
                path="kind",
                hint='Install it: pip install "agentworld[rewards]"',
            )
        from jsonschema.exceptions import SchemaError
        from jsonschema.validators import validator_for

        try:
            validator_for(self.schema).check_schema(self.schema)
        except SchemaError as error:
            raise ValueError(f"the schema is none: {error.message[:300]}") from None

    def evaluate(self, subject: BatchTrajectory) -> Verdict:
        """1 or 0."""
        reply = last_answer(subject)
        if self.answer == "auto":
            said = extract_answer(reply, "code") or extract_answer(reply)
        else:
            said = extract_answer(reply, self.answer)
        if said is None:
            return Verdict({self.reward: 0.0}, {"faults": ["no answer"]})
        # A schema's patterns may take for ever over a text that a policy chose.
        faults = children(_MEMORY_MB).call(
            f"{__name__}:faults_of", {"schema": self.schema, "text": said}, seconds=self.seconds
        )
        return Verdict({self.reward: float(not faults)}, {"faults": faults})


def prepare() -> None:
    """Load jsonschema; runs in a child, before its time is counted."""
    import jsonschema  # noqa: F401


def faults_of(payload: dict[str, Any]) -> list[str]:
    """What is wrong with the text, at most five faults; runs in a child."""
    import json

    from jsonschema.validators import validator_for
    from referencing import Registry

    try:
        value = json.loads(payload["text"], parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        return [f"no JSON: {error}"[:300]]
    schema = payload["schema"]
    # An empty registry: a reference out of the schema is an error and fetches nothing.
    validator = validator_for(schema, default=validator_for({"$schema": _DRAFT}))(schema, registry=Registry())
    return [f"{fault.json_path}: {fault.message}"[:300] for fault in islice(validator.iter_errors(value), 5)]


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")
