"""Rules for keys, tokens and passwords in text, by their published shapes.

Every pattern takes time linear in the text: it begins with a literal or at the beginning of a run of characters, and
goes through each run once (possessively), so that what is looked for may have any length.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

SCANNED = 1_000_000
"""Characters of one text that the checks look at; what is longer is looked at to there."""


class Hit(NamedTuple):
    """Something private from `start` to `end` of a text."""

    kind: str
    start: int
    end: int


class _Rule(NamedTuple):
    kind: str
    literals: tuple[str, ...]  # one of them is in every text that matches; few, as each is looked for in every text
    pattern: re.Pattern[str]


def _rule(kind: str, literals: str, pattern: str, begins: str = "", length: int = 0, word: str = r"\w") -> _Rule:
    """`begins`: the token's first characters, so many, before which none of `word` stands.

    An escape of JSON (`\\n`) may stand there: arguments of calls are read as they are written. So may letters beyond
    ASCII, as tokens are cited in texts without spaces.
    """
    if begins:
        so_far = f".{{{length}}}"
        pattern = rf"{begins}(?:(?<![{word}]{so_far})|(?<=\\[bfnrt]{so_far})){pattern}"
    return _Rule(kind, tuple(literals.split()), re.compile(pattern, re.ASCII))


_QUOTED = r"(?:\\?[\"'])?"
_RULES = (
    _rule("aws_key_id", "AKIA ASIA", r"[0-9A-Z]{16}(?![A-Za-z0-9])", "A[KS]IA", 4, "A-Za-z0-9"),
    _rule(
        "aws_secret",
        "aws_secret AWS_SECRET SecretAccessKey secretAccessKey",
        rf"(?i:aws_secret_access_key|secretaccesskey){_QUOTED}\s{{0,8}}[=:]\s{{0,8}}{_QUOTED}"
        r"[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+])",
    ),
    _rule("github_token", "gh", r"[A-Za-z0-9]{36,}+", "gh[pousr]_", 4),
    _rule("github_token", "github_pat_", r"\w{22,}+", "github_pat_", 11),
    _rule("gitlab_token", "glpat-", r"[\w-]{20,}+", "glpat-", 6),
    _rule("model_api_key", "sk-", r"(?:proj-|ant-|svcacct-)?(?=[\w-]*\d)[\w-]{20,}+", "sk-", 3, r"\w-"),
    _rule("slack_token", "xox", r"[A-Za-z0-9-]{10,}+", "xox[abeoprs]-", 5),
    _rule("google_key", "AIza", r"[0-9A-Za-z_-]{35}(?![\w-])", "AIza", 4),
    _rule("stripe_key", "k_live_ k_test_", r"[0-9A-Za-z]{16,}+", "[sr]k_(?:live|test)_", 8),
    _rule("npm_token", "npm_", r"[A-Za-z0-9]{36,}+", "npm_", 4),
    _rule("hugging_face_token", "hf_", r"[A-Za-z0-9]{34}(?!\w)", "hf_", 3),
    _rule("jwt", "eyJ", r"[\w-]{8,}+\.eyJ[\w-]{8,}+\.[\w-]{10,}+", "eyJ", 3, r"\w-"),
    _rule(
        "basic_auth",
        "uthorization UTHORIZATION",
        rf"(?i:authorization){_QUOTED}\s{{0,8}}[=:]\s{{0,8}}{_QUOTED}(?i:basic)\s{{1,8}}[A-Za-z0-9+/=_-]{{8,}}+",
    ),
    _rule("url_password", "://", r"://[^\s/:@\"'<>\\]*+:(?![$\{<*])[^\s/:@\"'<>\\]++@(?=[\w\[])"),
)
# Cut ones are no keys any more, and still not to be shown.
_CUT = (_rule("jwt", "eyJ", r"[\w-]{8,}+(?:\.[\w-]*+)*+", "eyJ", 3, r"\w-"),)
_KEY = "private_key"
_KEY_WORDS = "PRIVATE KEY"
_KEY_LINE = re.compile(r"----[- ](BEGIN|END) (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?[- ]----")
_KEY_BODY = re.compile(r"(?:(?:\s|\\[nrt]|[>|+#*\"',])*+[A-Za-z0-9+/=]{24,}+)*+(?:(?:\s|\\[nrt])*+[A-Za-z0-9+/=]+)?")


def secrets(text: str) -> Iterator[Hit]:
    """Keys, tokens and passwords in the first million characters."""
    text = text[:SCANNED]
    yield from _by(_RULES, text)
    begin: int | None = None
    for line in _key_lines(text):
        if line[1] == "BEGIN":
            if begin is not None:
                yield Hit(_KEY, begin, _body_end(text, begin, line.start()))
            begin = line.start()
        else:
            yield Hit(_KEY, line.start() if begin is None else begin, line.end())
            begin = None
    if begin is not None:
        yield Hit(_KEY, begin, _body_end(text, begin, len(text)))


def tokens_to_mask(text: str) -> Iterator[Hit]:
    """Keys, tokens and passwords but private keys in the whole text, and parts of tokens that were cut."""
    yield from _by(_RULES, text)
    yield from _by(_CUT, text)


def keys_to_mask(text: str) -> Iterator[Hit]:
    """Private keys in the whole text: also what follows a key's first line, or comes before its last, alone."""
    begin = 0
    inside = False
    for line in _key_lines(text):
        if line[1] == "BEGIN":
            if inside:
                yield Hit(_KEY, begin, line.start())
            begin, inside = line.start(), True
        else:
            yield Hit(_KEY, begin, line.end())
            begin, inside = line.end(), False
    if inside:
        yield Hit(_KEY, begin, len(text))


def _by(rules: tuple[_Rule, ...], text: str) -> Iterator[Hit]:
    for kind, literals, pattern in rules:
        for literal in literals:
            if literal in text:
                for match in pattern.finditer(text):
                    yield Hit(kind, match.start(), match.end())
                break


def _key_lines(text: str) -> Iterator[re.Match[str]]:
    return _KEY_LINE.finditer(text) if _KEY_WORDS in text else iter(())


def _body_end(text: str, begin: int, stop: int) -> int:
    """Where a key without a last line ends: behind the lines of its body."""
    line = _KEY_LINE.match(text, begin)
    body = _KEY_BODY.match(text, line.end() if line is not None else begin, stop)
    return body.end() if body is not None else stop
