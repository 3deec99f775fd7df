"""Which values a field takes that has a fixed list of them, for the errors of those that it does not take."""

from __future__ import annotations

import functools
import re
from typing import get_args

import msgspec

from agentworld.records.batch import BatchSpec
from agentworld.records.message import Message
from agentworld.records.signals import Annotation, Feedback
from agentworld.records.step import Step
from agentworld.records.trajectory import NewTrajectory, TerminalStatus

_RECORDS = (BatchSpec, NewTrajectory, Feedback, Annotation, Step, Message)
_NAME = re.compile(r"[a-z_]+")


def hint_of_values(message: str, path: str) -> str | None:
    """The values that the field at `path` takes, where msgspec's `message` says that it got another one."""
    names = _NAME.findall(path)
    if not message.startswith("Invalid enum value") or not names:
        return None
    known = known_values().get(names[-1])
    return f"Known: {', '.join(known)}" if known else None


@functools.cache
def known_values() -> dict[str, tuple[str, ...]]:
    """The values by the name of the field."""
    found: dict[str, tuple[str, ...]] = {"status": get_args(TerminalStatus)}
    for record in _RECORDS:
        info = msgspec.inspect.type_info(record)
        assert isinstance(info, msgspec.inspect.StructType)
        for field in info.fields:
            types = field.type.types if isinstance(field.type, msgspec.inspect.UnionType) else (field.type,)
            for one in types:
                if isinstance(one, msgspec.inspect.LiteralType):
                    found[field.name] = tuple(str(value) for value in one.values)
    return found
