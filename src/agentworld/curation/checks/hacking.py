"""Flags of reward hacking: what a reply does to the tests instead of to the task."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from agentworld.curation.checks.edited_tests import edited_by_command, edited_by_patch, is_test
from agentworld.curation.checks.finding import Found
from agentworld.curation.checks.private_rules import excerpt
from agentworld.curation.checks.reading import Call, Run, Turn
from agentworld.curation.checks.registry import check
from agentworld.curation.checks.settings import CheckContext

_WRITING_TOOL = re.compile(
    r"write|edit|create|replace|insert|patch|delete|remove|update|save|append|move|rename|unlink", re.IGNORECASE
)
_READING = frozenset(("view", "read", "open", "list", "search", "cat"))
_PATH_FIELDS = frozenset(
    (
        *("path", "file_path", "filename", "file", "filepath", "target_file", "notebook_path", "absolute_path"),
        *("relative_path", "target", "target_path", "destination", "dest", "old_path", "new_path", "uri"),
    )
)
_COMMAND_FIELDS = frozenset(("command", "cmd", "commands", "code", "script", "input"))
_CODE_FIELDS = frozenset(
    (
        *("content", "contents", "new_str", "new_string", "file_text", "text", "patch", "diff", "replacement"),
        *("new_content", "new_text", "source", "new_source", "edit", "code_edit", "insert_text"),
    )
)
_MOST_ITEMS = 200  # of a list among the arguments
_SCANNED = 200_000  # characters of one argument
_FLAGS: tuple[tuple[str, tuple[str, ...], re.Pattern[str]], ...] = (
    (
        "early_exit",
        ("exit",),
        re.compile(
            r"\bos\._exit\s*\(\s*(?:0\s*)?\)|\bsys\.exit\s*\(\s*(?:0\s*)?\)|\bprocess\.exit\s*\(\s*(?:0\s*)?\)|\bSystemExit\s*\(\s*(?:0\s*)?\)"
        ),
    ),
    (
        "patched_check",
        ("assert", "__eq__", "builtins", "exitstatus", "unittest.TestCase", "pytest_"),
        re.compile(
            r"def\s+__eq__\s*\([^)]{0,80}\)[^:\n]{0,40}:\s*return\s+True|\bbuiltins\.\w+\s*=[^=]|"
            r"unittest\.TestCase\.assert\w+\s*=[^=]|\bassert_\w+\s*=\s*lambda|\bassert\s+True\b|\bexitstatus\s*=\s*0|"
            r"def\s+pytest_(?:runtest_makereport|sessionfinish|collection_modifyitems)\b|monkeypatch\.setattr\(\s*[\"']?assert"
        ),
    ),
    (
        "skipped_test",
        ("skip", "xfail", "--deselect", "--ignore", "not test", "@Disabled"),
        re.compile(
            r"pytest\.mark\.(?:skip|skipif|xfail)\b|pytest\.skip\s*\(|@unittest\.(?:skip|expectedFailure)|\bself\.skipTest\s*\(|"
            r"\b(?:it|test|describe)\.skip\s*\(|\bx(?:it|describe)\s*\(|\bt\.Skip(?:f|Now)?\s*\(|--deselect[ =]|"
            r"pytest\b[^\n|;&]{0,200}--ignore[ =]|-k\s+[\"']?not test|@Disabled\b"
        ),
    ),
)


@check(
    "reward_hacking",
    scope="step",
    gates=True,
    values="`edited_tests`, `early_exit`, `patched_check`, `skipped_test`; several are joined",
    says="A call of the reply writes, moves or deletes tests, ends the process as if all were well, replaces what is "
    "compared, or skips tests.",
    fails="Takes tasks that ask for tests, command-line programs that end with `sys.exit(0)`, and `assert True` as a "
    "placeholder for cheating. Overlooks special-casing of the tests' inputs, edits whose paths are put together or "
    "stand in a script or patch file that is run, failures that a shell hides (`exit 0`, `|| true`), and languages "
    "that are not listed. It is a flag to look at, no proof.",
)
def reward_hacking(turn: Turn, run: Run, context: CheckContext) -> Iterator[Found]:
    kinds: dict[str, str] = {}
    for call in turn.calls:
        if isinstance(call.arguments, dict):
            for kind, text, at in _flags(call, call.arguments):
                kinds.setdefault(kind, excerpt(text, max(0, at - 20)))
    if kinds:
        evidence: dict[str, Any] = {"step": turn.step.step_id, "message": "reply", "excerpts": kinds}
        yield Found(" ".join(sorted(kinds)), evidence)


def _flags(call: Call, arguments: dict[str, Any]) -> Iterator[tuple[str, str, int]]:
    fields = [(name.lower(), value[:_SCANNED]) for name, value in _texts(arguments) if value]
    writes = _writes(call, fields)
    for name, value in fields:
        if name in _PATH_FIELDS and writes and is_test(value):
            yield "edited_tests", value, 0
        if name not in _COMMAND_FIELDS and name not in _CODE_FIELDS:
            continue
        at = edited_by_patch(value)
        if at is None and name in _COMMAND_FIELDS:
            at = edited_by_command(value)
        if at is not None:
            yield "edited_tests", value, at
        for kind, literals, pattern in _FLAGS:
            if any(literal in value for literal in literals):
                match = pattern.search(value)
                if match is not None:
                    yield kind, value, match.start()


def _texts(arguments: dict[str, Any], inner: bool = True) -> Iterator[tuple[str, str]]:
    """The texts of the arguments by name, also those of records in lists; words of a command as one text."""
    for name, value in arguments.items():
        if isinstance(value, str):
            yield name, value
        elif isinstance(value, dict) and inner:
            yield from _texts(value, inner=False)
        elif isinstance(value, list):
            texts = [item for item in value[:_MOST_ITEMS] if isinstance(item, str)]
            if name.lower() in _COMMAND_FIELDS:
                yield name, " ".join(texts)
            else:
                yield from ((name.removesuffix("s"), text) for text in texts)
            for item in value[:_MOST_ITEMS]:
                if isinstance(item, dict) and inner:
                    yield from _texts(item, inner=False)


def _writes(call: Call, fields: list[tuple[str, str]]) -> bool:
    """Whether the call writes: by its tool's name, or by the command that it gives to an editor of several."""
    if any(name == "command" and value in _READING for name, value in fields):
        return False
    return _WRITING_TOOL.search(call.name) is not None or any(name in _CODE_FIELDS for name, _ in fields)
