"""Policies as files: TOML with the fields of a `CurationPolicy`.

name = "strict"
channel = "train"
default = "ready"
rules = [
    "when status == 'truncated' then exclude 'ran out of turns'",
    "when has reward then ready",
]
"""

from __future__ import annotations

from pathlib import Path

from agentworld.config import convert, read_toml
from agentworld.records import CurationPolicy


class PolicyFile(CurationPolicy, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What such a file may hold."""


def read_policy(path: str | Path) -> CurationPolicy:
    """The policy in a file, its rules as they stand there: pools read them. ConfigError names what is no policy, and
    the nearest field to one that is unknown.
    """
    found = convert(read_toml(path), PolicyFile, str(path))
    return CurationPolicy(**{name: getattr(found, name) for name in CurationPolicy.__struct_fields__})
