"""Rules for secrets and personal data in text, and excerpts of text with both masked."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

EXCERPT = 120  # characters
_AROUND = 400  # of an excerpt, so that a secret that it cuts is masked too
_SCANNED = 1_000_000  # characters of one text; what is longer is looked at to there


class Hit(NamedTuple):
    """Something private from `start` to `end` of a text."""

    kind: str
    start: int
    end: int


class _Rule(NamedTuple):
    kind: str
    literals: tuple[str, ...]  # one of them is in every text that matches
    pattern: re.Pattern[str]


_SECRETS = (
    _Rule("aws_key_id", ("AKIA", "ASIA"), re.compile(r"(?<![A-Za-z0-9])(?:AKIA|ASIA)[0-9A-Z]{16}(?![A-Za-z0-9])")),
    _Rule(
        "aws_secret",
        ("aws_secret", "AWS_SECRET", "SecretAccessKey", "secretAccessKey"),
        re.compile(
            r"(?i:aws_secret_access_key|secretaccesskey)[\"']?\s{0,8}[=:]\s{0,8}[\"']?[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+])"
        ),
    ),
    _Rule(
        "github_token",
        ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
        re.compile(r"(?<!\w)(?:gh[pousr]_[A-Za-z0-9]{36,255}|github_pat_[A-Za-z0-9_]{22,255})"),
    ),
    _Rule("gitlab_token", ("glpat-",), re.compile(r"(?<!\w)glpat-[A-Za-z0-9_-]{20,}")),
    _Rule("model_api_key", ("sk-",), re.compile(r"(?<![\w-])sk-(?:proj-|ant-|svcacct-)?(?=[\w-]*\d)[\w-]{20,250}")),
    _Rule("slack_token", ("xox",), re.compile(r"(?<!\w)xox[abeoprs]-[A-Za-z0-9-]{10,250}")),
    _Rule("google_key", ("AIza",), re.compile(r"(?<!\w)AIza[0-9A-Za-z_-]{35}(?![\w-])")),
    _Rule("stripe_key", ("k_live_",), re.compile(r"(?<!\w)[sr]k_live_[0-9A-Za-z]{16,250}")),
    _Rule("hugging_face_token", ("hf_",), re.compile(r"(?<!\w)hf_[A-Za-z0-9]{34}(?!\w)")),
    _Rule(
        "jwt",
        ("eyJ",),
        re.compile(r"(?<![\w-])eyJ[\w-]{8,4000}\.eyJ[\w-]{8,8000}\.[\w-]{10,2000}"),
    ),
    _Rule(
        "private_key",
        ("PRIVATE KEY-----",),
        re.compile(
            r"-----BEGIN (?:[A-Z]+ ){0,3}PRIVATE KEY-----(?:[\s\S]{0,4000}?-----END (?:[A-Z]+ ){0,3}PRIVATE KEY-----)?"
        ),
    ),
    _Rule("url_password", ("://",), re.compile(r"://[^\s/:@\"'<>]{1,64}:(?!\$|\{|<|\*)[^\s/:@\"'<>]{3,64}@(?=\w)")),
)

_NUMBERS = re.compile(r"(?<![\w.])[+(]?\d(?:[ ().-]{0,2}\d){8,22}(?!\w)")
# Where numbers may be; begins with a plain set of characters, which is searched for several times as fast.
_MAYBE_NUMBERS = re.compile(r"[0-9][0-9 ().-]{6,}")
_FEWEST_DIGITS = 9  # of a telephone number
_MAYBE_IBAN = re.compile(r"[A-Z]{2}[0-9]{2}[ A-Z0-9]")
_NORTH_AMERICAN = re.compile(r"(?:1[ .-])?(?:\(\d{3}\) ?|\d{3}[.-])\d{3}[.-]\d{4}")
_CARD = re.compile(r"\d{13,19}|\d{4}([ -])\d{4}\1\d{4}\1\d{1,7}|\d{4}([ -])\d{6}\2\d{5}")
_CARD_NUMBER = re.compile(
    r"4\d{12}(?:\d{3}){0,2}|5[1-5]\d{14}|2[2-7]\d{14}|3[47]\d{13}|6(?:011|5\d\d|4[4-9]\d)\d{12}|35\d{14}"
)
_IPV4 = re.compile(r"(?<![\w.-])(?:\d{1,3}\.){3}\d{1,3}(?![\w-]|\.\d)")
_IBAN = re.compile(r"(?<![A-Za-z0-9])[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?(?![A-Za-z0-9])")
_MAIL_NAME = re.compile(r"(?<![\w.%+-])[A-Za-z0-9_][\w.%+-]{0,63}\Z", re.ASCII)
_MAIL_HOST = re.compile(r"@((?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.){1,4}[A-Za-z]{2,24})(?![\w-])", re.ASCII)
_NOBODYS_MAIL = re.compile(r"(?:.*\.)?(?:example\.(?:com|org|net)|.*\.(?:example|test|invalid|local|localhost))", re.I)
_NOBODY = frozenset(("git", "noreply", "no-reply", "donotreply"))


def secrets(text: str) -> Iterator[Hit]:
    """Keys, tokens and passwords, by their published shapes."""
    for kind, literals, pattern in _SECRETS:
        for literal in literals:
            if literal in text:
                for match in pattern.finditer(text[:_SCANNED]):
                    yield Hit(kind, match.start(), match.end())
                break


def personal_data(text: str) -> Iterator[Hit]:
    """E-mail addresses, telephone numbers, IBANs, card numbers and public IPv4 addresses.

    Cards are checked by Luhn's formula and issuer, IBANs by their remainder (ISO 13616: 1 modulo 97).
    """
    text = text[:_SCANNED]
    if "@" in text:
        yield from _mails(text)
    for maybe in _MAYBE_NUMBERS.finditer(text):
        begin, end = max(0, maybe.start() - 1), maybe.end() + 1
        if sum(map(maybe[0].count, "0123456789")) >= _FEWEST_DIGITS:
            for match in _NUMBERS.finditer(text, begin, end):
                kind = _number_kind(match[0])
                if kind is not None:
                    yield Hit(kind, match.start(), match.end())
        if maybe[0].count(".") >= 3:
            for match in _IPV4.finditer(text, begin, end + 1):
                if _is_public(match[0]):
                    yield Hit("ipv4", match.start(), match.end())
    for maybe in _MAYBE_IBAN.finditer(text):
        found = _IBAN.match(text, maybe.start())
        if found is not None and _is_iban(found[0].replace(" ", "")):
            yield Hit("iban", found.start(), found.end())


def _mails(text: str) -> Iterator[Hit]:
    at = text.find("@")
    while at >= 0:
        host = _MAIL_HOST.match(text, at)
        name = _MAIL_NAME.search(text, max(0, at - 65), at) if host else None
        if host and name and name[0].lower() not in _NOBODY and not _NOBODYS_MAIL.fullmatch(host[1]):
            yield Hit("email", name.start(), host.end())
        at = text.find("@", at + 1)


def _number_kind(text: str) -> str | None:
    digits = "".join(filter(str.isdecimal, text))
    if not digits.isascii():
        return None
    if _CARD.fullmatch(text.lstrip("(")) and _CARD_NUMBER.fullmatch(digits) and _luhn(digits):
        return "card"
    international = text.startswith("+") and 8 <= len(digits) <= 15 and digits[0] != "0"
    if international or _NORTH_AMERICAN.fullmatch(text.lstrip("+")):
        return "phone"
    return None


def _luhn(digits: str) -> bool:
    """Luhn's formula (ISO/IEC 7812-1, annex B): every second digit from the right doubled, digit sums add up to 10s."""
    total = sum(map(int, digits[-1::-2]))
    return (total + sum(sum(divmod(2 * int(digit), 10)) for digit in digits[-2::-2])) % 10 == 0


def _is_iban(text: str) -> bool:
    if not 15 <= len(text) <= 34:
        return False
    return int("".join(str(int(character, 36)) for character in text[4:] + text[:4])) % 97 == 1


def _is_public(text: str) -> bool:
    try:
        return ipaddress.IPv4Address(text).is_global
    except ValueError:
        return False


_KINDS: tuple[Callable[[str], Iterator[Hit]], ...] = (secrets, personal_data)


def masked(text: str) -> str:
    """`text` with everything private replaced by its kind, as `<email>`."""
    hits = sorted((hit for find in _KINDS for hit in find(text)), key=lambda hit: (hit.start, -hit.end))
    parts: list[str] = []
    done = 0
    for hit in hits:
        if hit.start >= done:
            parts += (text[done : hit.start], f"<{hit.kind}>")
        done = max(done, hit.end)
    return "".join([*parts, text[done:]])


def excerpt(text: str, start: int = 0, end: int | None = None) -> str:
    """At most 120 characters of `text` from `start` to `end`, private data masked, lone surrogates replaced."""
    stop = min(len(text) if end is None else end, start + EXCERPT)
    begin = max(0, start - _AROUND)
    around = text[begin : stop + _AROUND]
    hits = [hit for find in _KINDS for hit in find(around)]
    parts: list[str] = []
    done = start - begin
    for hit in sorted(hits, key=lambda hit: (hit.start, -hit.end)):
        if hit.end <= done or hit.start >= stop - begin:
            continue
        parts += (around[done : max(done, hit.start)], f"<{hit.kind}>")
        done = hit.end
    parts.append(around[done : max(done, stop - begin)])
    return "".join(parts)[:EXCERPT].encode("utf-8", "replace").decode()
