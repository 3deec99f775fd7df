"""Checks for secrets and personal data. Their evidence says what and where, never the thing itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

from agentworld.curation.checks.finding import Found
from agentworld.curation.checks.private_rules import personal_data
from agentworld.curation.checks.reading import Run, Turn
from agentworld.curation.checks.registry import check
from agentworld.curation.checks.secret_rules import Hit, secrets
from agentworld.curation.checks.settings import CheckContext

_MOST_PLACES = 8


@check(
    "secret",
    scope="step",
    gates=True,
    values="kinds, such as `aws_key_id`, `github_token`, `jwt`, `private_key`, `url_password`",
    says="What is new in this step, in its prompt, reply or the tools offered, holds a key, a token or a password.",
    fails="Takes made-up keys of the right shape (documentation, test fixtures) for real ones. Overlooks passwords in "
    "free text, keys without a known shape, encoded ones, and what stands beyond a million characters of one text.",
)
def secret(turn: Turn, run: Run, context: CheckContext) -> Iterator[Found]:
    tools = (("tools", text) for text in turn.tool_texts())
    yield from _private(turn, secrets, chain(turn.texts(), tools))


@check(
    "personal_data",
    scope="step",
    values="kinds: `email`, `phone`, `iban`, `card`, `ipv4`",
    says="What is new in this step holds an e-mail address, a telephone number, an IBAN, a card number or a public "
    "IPv4 address.",
    fails="Takes version numbers of four parts for addresses, invented persons' data for real ones, and one in ten "
    "random numbers with a card issuer's beginning and length for cards. Overlooks names, postal addresses, national "
    'telephone numbers outside North America, addresses written as "a at b", and in one text what stands beyond a '
    "million characters or behind 10,000 places that look like it.",
)
def personal(turn: Turn, run: Run, context: CheckContext) -> Iterator[Found]:
    yield from _private(turn, personal_data, turn.texts())


def _private(
    turn: Turn, find: Callable[[str], Iterator[Hit]], texts: Iterable[tuple[int | str, str]]
) -> Iterator[Found]:
    places: list[dict[str, Any]] = []
    kinds: dict[str, int] = {}
    for at, text in texts:
        for hit in find(text):
            kinds[hit.kind] = kinds.get(hit.kind, 0) + 1
            if len(places) < _MOST_PLACES:
                places.append({"kind": hit.kind, "message": at, "start": hit.start, "length": hit.end - hit.start})
    if kinds:
        yield Found(" ".join(sorted(kinds)), {"step": turn.step.step_id, "counts": kinds, "places": places})
