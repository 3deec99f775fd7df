"""Rules for personal data in text, and excerpts of text with it and secrets masked."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from itertools import islice

from agentworld.curation.checks.secret_rules import SCANNED, Hit, keys_to_mask, tokens_to_mask

EXCERPT = 120  # characters
_AROUND = 400  # of an excerpt, so that what it cuts is masked too: personal data, and how a token begins
_LONGEST_RUN = 65_536  # characters without a break before an excerpt that are looked at for the beginning of a token
_MOST_CANDIDATES = 10_000  # of a kind in one text that are looked at closely
_BREAK = re.compile(r"[^!-~]|[\"'<>]")  # no token goes over it

_BEGINS = r"(?:(?<![\w.])|(?<=\\[nrt]))"  # of a word, or behind an escape of JSON
_NUMBERS = re.compile(_BEGINS + r"[+(]?\d(?:[ ().-]{0,2}\d){8,22}(?!\w)", re.ASCII)
# Where numbers may be; begins with a plain set of characters, which is searched for several times as fast.
_MAYBE_NUMBERS = re.compile(r"[0-9][0-9 ().-]{6,}")
_FEWEST_DIGITS = 9  # of a telephone number
_MAYBE_IBAN = re.compile(r"[A-Z]{2}[0-9]{2}[ A-Z0-9]")
_NORTH_AMERICAN = re.compile(r"(?:1[ .-])?(?:\(\d{3}\) ?|\d{3}[.-])\d{3}[.-]\d{4}")
_CARD = re.compile(r"\d{13,19}|\d{4}([ -])\d{4}\1\d{4}\1\d{1,7}|\d{4}([ -])\d{6}\2\d{5}")
_CARD_NUMBER = re.compile(
    r"4\d{12}(?:\d{3}){0,2}|5[1-5]\d{14}|2[2-7]\d{14}|3[47]\d{13}|6(?:011|5\d\d|4[4-9]\d)\d{12}|35\d{14}"
)
_IPV4 = re.compile(r"(?:(?<![\w.-])|(?<=\\[nrt]))(?:\d{1,3}\.){3}\d{1,3}(?![\w-]|\.\d)", re.ASCII)
_IBAN = re.compile(
    r"(?:(?<![A-Za-z0-9])|(?<=\\[nrt]))[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?(?![A-Za-z0-9])"
)
_MAIL_NAME = re.compile(r"(?<![\w.%+-])[A-Za-z0-9_][\w.%+-]{0,63}\Z", re.ASCII)
_MAIL_HOST = re.compile(r"@((?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.){1,4}[A-Za-z]{2,24})(?![\w-])", re.ASCII)
_NOBODYS_MAIL = re.compile(r"(?:.*\.)?(?:example\.(?:com|org|net)|.*\.(?:example|test|invalid|local|localhost))", re.I)
_NOBODY = frozenset(("git", "noreply", "no-reply", "donotreply"))


def personal_data(text: str) -> Iterator[Hit]:
    """E-mail addresses, telephone numbers, IBANs, card numbers and public IPv4 addresses.

    In the first million characters, and there among the first 10,000 candidates of each of three shapes. Cards are
    checked by Luhn's formula and issuer, IBANs by their remainder (ISO 13616: 1 modulo 97).
    """
    text = text[:SCANNED]
    if "@" in text:
        yield from _mails(text)
    for maybe in islice(_MAYBE_NUMBERS.finditer(text), _MOST_CANDIDATES):
        run = maybe[0]
        begin, end = max(0, maybe.start() - 1), maybe.end() + 1
        # Most are short, and are told by that alone.
        if len(run) >= _FEWEST_DIGITS and sum(map(run.count, "0123456789")) >= _FEWEST_DIGITS:
            for match in _NUMBERS.finditer(text, begin, end):
                kind = _number_kind(match[0])
                if kind is not None:
                    yield Hit(kind, match.start(), match.end())
        if run.count(".") >= 3:
            for match in _IPV4.finditer(text, begin, end + 1):
                if _is_public(match[0]):
                    yield Hit("ipv4", match.start(), match.end())
    for maybe in islice(_MAYBE_IBAN.finditer(text), _MOST_CANDIDATES):
        found = _IBAN.match(text, maybe.start())
        if found is not None and _is_iban(found[0].replace(" ", "")):
            yield Hit("iban", found.start(), found.end())


def _mails(text: str) -> Iterator[Hit]:
    at = -1
    for _ in range(_MOST_CANDIDATES):
        at = text.find("@", at + 1)
        if at < 0:
            return
        host = _MAIL_HOST.match(text, at)
        name = _MAIL_NAME.search(text, max(0, at - 65), at) if host else None
        if host and name and name[0].lower() not in _NOBODY and not _NOBODYS_MAIL.fullmatch(host[1]):
            yield Hit("email", name.start(), host.end())


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


def masked(text: str) -> str:
    """`text` with every secret replaced by its kind, as `<jwt>`, however long either is."""
    hits = [*tokens_to_mask(text), *keys_to_mask(text)]
    return _shown(text, 0, len(text), hits) if hits else text


def excerpt(text: str, start: int = 0, end: int | None = None) -> str:
    """At most 120 characters of `text` from `start` to `end`, private data masked, lone surrogates replaced.

    What the excerpt cuts is masked too, wherever it begins and however long it is; a run of over 65,536 characters
    without a break, whose beginning cannot be known, is left out as `<long>`.
    """
    stop = min(len(text) if end is None else end, start + EXCERPT)
    run, is_whole = _run_begin(text, start)
    low, high = max(0, run - _AROUND), _run_end(text, stop) + _AROUND
    hits = [Hit(kind, low + first, low + last) for kind, first, last in tokens_to_mask(text[low:high])]
    near = max(0, start - _AROUND)
    hits += [Hit(kind, near + first, near + last) for kind, first, last in personal_data(text[near : stop + _AROUND])]
    hits += keys_to_mask(text)
    if not is_whole:
        hits.append(Hit("long", run, _run_end(text, start)))
    return _shown(text, start, stop, hits)[:EXCERPT].encode("utf-8", "replace").decode()


def _shown(text: str, start: int, stop: int, hits: list[Hit]) -> str:
    parts: list[str] = []
    done = start
    for hit in sorted(hits, key=lambda hit: (hit.start, -hit.end)):
        if hit.end <= done or hit.start >= stop:
            continue
        if hit.start >= done or not parts:
            parts += (text[done : hit.start], f"<{hit.kind}>")
        done = hit.end
    parts.append(text[done:stop])
    return "".join(parts)


def _run_begin(text: str, at: int) -> tuple[int, bool]:
    """Where the run of characters that `at` stands in begins, and whether that is its beginning."""
    size = _AROUND
    while True:
        low = max(0, at - size)
        found = _BREAK.search(text[low:at][::-1])
        if found is not None:
            return at - found.start(), True
        if low == 0 or size >= _LONGEST_RUN:
            return low, low == 0
        size = min(4 * size, _LONGEST_RUN)


def _run_end(text: str, at: int) -> int:
    found = _BREAK.search(text, at, at + _LONGEST_RUN)
    return found.start() if found is not None else min(len(text), at + _LONGEST_RUN)
