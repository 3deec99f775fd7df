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

import difflib
from collections.abc import Iterator
from pathlib import Path

from agentworld.config import convert, read_toml
from agentworld.curation.checks import known
from agentworld.curation.checks.finding import PREFIX
from agentworld.curation.checks.registry import FAILED
from agentworld.query import conditions, parse_rules
from agentworld.query.expression import Flag
from agentworld.records import CurationPolicy


class PolicyFile(CurationPolicy, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What such a file may hold."""


def read_policy(path: str | Path) -> CurationPolicy:
    """The policy in a file, its rules as they stand there: pools read them. ConfigError names what is no policy, and
    the nearest field to one that is unknown.
    """
    found = convert(read_toml(path), PolicyFile, str(path))
    return CurationPolicy(**{name: getattr(found, name) for name in CurationPolicy.__struct_fields__})


def doubts(policy: CurationPolicy) -> Iterator[str]:
    """What is hardly meant in the rules of a policy, a line each: labels of checks that are not known, and those asked
    whether they are true whose values never are. Such a rule never holds, so it keeps nothing back.
    """
    there = known()
    for number, rule in enumerate(parse_rules(policy.rules), 1):
        for found in conditions(rule.when):
            key = found.field.key or ""
            if found.field.field.name != "label" or not key.startswith(PREFIX):
                continue
            name = key.removeprefix(PREFIX)
            if name not in there and name != FAILED:
                near = difflib.get_close_matches(name, there, n=1)
                hint = f"; did you mean {near[0]}?" if near else ""
                yield f"rule {number}: no check is called {name!r} here{hint}"
            elif isinstance(found, Flag) and (name == FAILED or there[name].values != "true"):
                values = "names of checks" if name == FAILED else there[name].values
                label = str(found.field)
                yield f"rule {number}: {label} alone holds where it is true, and it is {values}: write has {label}"
