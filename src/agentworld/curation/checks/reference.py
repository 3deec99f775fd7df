"""The reference of checks as a page: `python -m agentworld.curation.checks.reference > docs/reference/checks.md`."""

from __future__ import annotations

import sys

import msgspec

from agentworld.curation.checks.registry import Check, Scope, built_in
from agentworld.curation.checks.settings import CheckSettings

_TEXT = """# Checks

A check says something of a trajectory or a step, as a label `check.NAME` with evidence: in which step and message,
and an excerpt in which keys and personal data are masked. Rules and `where` read it as `label.check.NAME`;
`has label.check.NAME` holds whatever its value is, and the name alone where that is true. A label that is not there
means that nothing was found, or that the check has not run. What a check of steps found is said of the
trajectory too, with its values joined. `check.failed` names checks that raised an error on a trajectory.

Checks marked *gates* are meant for rules that keep something from being served; none does so by itself. Those marked
*optional* run only where they are given what they need. Each tells what it takes for its case wrongly, and what it
overlooks.

A check of scope `step` or `trajectory` reads one trajectory, one of scope `group` the rollouts of a group, and one of
scope `pool` goes through trajectories one by one and keeps a state, so that an incremental pass costs what is new.

A check takes time linear in what it reads, whatever the text, and reads the first million characters of one text
(`reward_hacking` the first 200,000 of one argument, `tool_error` the beginning and the end). What evidence shows is
masked wherever it stands and however long a key is; where a check, yours too, puts a key into its evidence, it is
masked before the label is made.

## Your own

    from agentworld.curation.checks import Found, check

    @check("shouting", scope="step", says="The reply is in capitals.", fails="Takes acronyms for shouting.")
    def shouting(turn, run, context):
        if turn.reply is not None and turn.reply.text.isupper():
            yield Found(evidence={"step": turn.step.step_id, "message": "reply"})

A package gives its checks under the entry point `agentworld.checks`, which names the module that registers them.
"""

_SCOPES: dict[Scope, str] = {
    "trajectory": "Of trajectories",
    "step": "Of steps",
    "group": "Of groups",
    "pool": "Over a pool",
}


def page() -> str:
    """The whole page as Markdown."""
    there = built_in().values()
    parts = [_TEXT]
    for scope, title in _SCOPES.items():
        parts.append(f"\n## {title}\n")
        parts += [_check(each) for each in sorted(there, key=lambda each: each.name) if each.scope == scope]
    parts.append(f"\n## Settings\n\n{_settings()}")
    return "".join(parts)


def _check(each: Check) -> str:
    marks = [mark for mark, is_so in (("gates", each.gates), ("optional", each.optional)) if is_so]
    marked = f" (*{', '.join(marks)}*)" if marks else ""
    return (
        f"\n### {each.name}\n\nVersion {each.version}{marked}. Value: {each.values}.\n\n{each.says}\n\n"
        f"How it fails: {each.fails}\n"
    )


def _settings() -> str:
    described = " ".join((CheckSettings.__doc__ or "").split())
    rows = [
        f"| `{field.name}` | {'none' if field.default is None else f'`{_json(field.default)}`'} |"
        for field in msgspec.structs.fields(CheckSettings)
    ]
    return "\n".join((described, "", "| setting | default |", "|---|---|", *rows, ""))


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


if __name__ == "__main__":
    sys.stdout.write(page())
