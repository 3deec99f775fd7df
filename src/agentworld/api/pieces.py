"""The text of ids, as far as this server holds the vocabulary that they are from."""

from __future__ import annotations

from typing import Annotated

import msgspec
from litestar import get
from litestar.datastructures import State
from litestar.params import QueryParameter

from agentworld.client.wire import API
from agentworld.errors import InvalidRequestError, NotFoundError

MOST_IDS = 500

Vocabulary = Annotated[str, QueryParameter(description="As a step names it")]
Ids = Annotated[str, QueryParameter(description=f"Comma-separated ids, up to {MOST_IDS}")]


class Pieces(msgspec.Struct, frozen=True):
    """The text of each id by itself, in the order that was asked for. Bytes that are no UTF-8 alone, such as a part of
    a character, are written as `\\xNN`; an id outside the vocabulary is null.
    """

    vocabulary: str
    pieces: list[str | None]


@get(f"{API}/pieces", sync_to_thread=True)
def pieces(state: State, vocabulary: Vocabulary, ids: Ids) -> Pieces:
    """What ids of a vocabulary stand for. A server knows those of the models that it serves with a tokenizer."""
    wanted = _ids(ids)
    gateway = state.gateway
    for model in gateway.models.by_name.values() if gateway is not None else ():
        if model.token_in is not None and model.token_in.vocabulary == vocabulary:
            tokenizer = model.token_in.tokenizer
            known = tokenizer.vocab_size
            # What is asked of a tokenizer it keeps, so it is asked for ids of its own alone.
            found = [tokenizer.token_bytes(one) if one < known else None for one in wanted]
            return Pieces(
                vocabulary, [None if piece is None else piece.decode("utf-8", "backslashreplace") for piece in found]
            )
    raise NotFoundError(
        f"This server has no tokenizer of the vocabulary {vocabulary[:100]!r}",
        path="?vocabulary",
        hint="Serve the model with --tokenizer; ids stay what they are without it",
    )


def _ids(text: str) -> list[int]:
    """The ids that a query names."""
    named = [one.strip() for one in text.split(",") if one.strip()]
    if len(named) > MOST_IDS:
        raise InvalidRequestError(f"{len(named)} ids are asked for, at most {MOST_IDS} are answered", path="?ids")
    for one in named:
        if not one.isascii() or not one.isdigit() or len(one) > 10:
            raise InvalidRequestError(f"{one[:40]!r} is no id", path="?ids", hint="Write ids in digits, with commas")
    return [int(one) for one in named]


ROUTES = [pieces]
