"""Stored responses of the Responses API for who asks by id: the response itself, and the items that went into it."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import parse_qsl

from agentworld.capture.call import first_step_id
from agentworld.dialects.fields import Fields
from agentworld.dialects.media import media_of
from agentworld.dialects.responses import check_include, response_exchange
from agentworld.dialects.responses_input import MAX_PAGE, input_items, input_messages, page_of
from agentworld.dialects.responses_stored import is_response, stored_body, stored_entries
from agentworld.errors import InvalidRequestError, NotFoundError
from agentworld.gateway.access import Grant
from agentworld.gateway.identity import Identity
from agentworld.gateway.models import Models
from agentworld.pool.protocol import Pool
from agentworld.records import Step

LOGPROBS = "message.output_text.logprobs"
IMAGES = "message.input_image.image_url"
DEFAULT_PAGE = 20
_MAX_FIELDS = 64


class StoredResponses:
    """Reads them back from the pool, whichever process took the call."""

    def __init__(self, pool: Pool, models: Models) -> None:
        self._pool = pool
        self._models = models

    async def body(self, response_id: str, query: bytes, identity: Identity, grant: Grant) -> dict[str, Any]:
        """The response. With `include` of log-probabilities it has them, as the call asked for them or, without
        alternatives, as the model's tokenizer spells the ids.

        NotFoundError where there is none, or not in the trajectory that the caller names, or not for the caller's key.
        """
        fields, included = read_query(query)
        for name in ("stream", "include_obfuscation"):
            fields.neutral(name, "false")
        fields.finish()
        wanted = LOGPROBS in included
        step = await self._step(response_id, identity, grant, ("messages", "tokens", "logprobs") if wanted else ())
        return stored_body(step, self._entries(step) if wanted else None) or {}

    async def input(self, response_id: str, query: bytes, identity: Identity, grant: Grant) -> dict[str, Any]:
        """A page of the response's input items; errors as in `body`."""
        fields, included = read_query(query)
        order, after, limit = fields.take("order", str) or "desc", fields.take("after", str), fields.take("limit", str)
        if order not in ("asc", "desc"):
            raise fields.refuse("order", "asc or desc")
        count = int(limit) if limit and limit.isascii() and limit.isdecimal() and len(limit) < 6 else DEFAULT_PAGE
        if not 1 <= count <= MAX_PAGE or (limit is not None and str(count) != limit):
            raise fields.refuse("limit", f"a whole number from 1 to {MAX_PAGE}")
        fields.finish()
        step = await self._step(response_id, identity, grant)

        def page() -> dict[str, Any]:
            shown = {part.digest for part in media_of(input_messages(step))} if IMAGES in included else ()
            media = {digest: self._pool.get_media(digest).data for digest in shown} if IMAGES in included else None
            return page_of(input_items(step, media), order=order, after=after, limit=count)

        return await asyncio.to_thread(page)

    async def _step(self, response_id: str, identity: Identity, grant: Grant, include: tuple[str, ...] = ()) -> Step:
        exchange_id = response_exchange(response_id)
        if exchange_id is not None:
            try:
                step = await asyncio.to_thread(
                    self._pool.get_step, first_step_id(exchange_id), include=include or ("messages",)
                )
                named = identity.trajectory_id in (None, step.trajectory_id)
                if named and grant.covers(step) and is_response(step):
                    return step
            except NotFoundError:
                pass
        raise NotFoundError(
            f"there is no response {response_id[:100]!r}",
            path="response_id",
            hint="Responses are there from their end on, under the id that the reply has",
        )

    def _entries(self, step: Step) -> list[dict[str, Any]]:
        kept = stored_entries(step)
        if kept is not None or step.response_ids is None or step.response_logprobs is None:
            return kept or []
        model = self._models.by_name.get(step.model or "")
        token_in = model.token_in if model is not None else None
        if token_in is None or step.vocabulary != token_in.vocabulary:
            raise InvalidRequestError(
                "nobody asked for the log-probabilities of this response, and there is no tokenizer to spell its ids",
                path="include",
                hint="Send include with the call, or read the step's ids and log-probabilities from the pool",
            )
        return token_in.entries(step.response_ids, step.response_logprobs)


def read_query(query: bytes) -> tuple[Fields, list[str]]:
    """The fields of a query, each given once, and what it asks to be included."""
    try:
        pairs = parse_qsl(query.decode("ascii"), keep_blank_values=True, max_num_fields=_MAX_FIELDS, errors="strict")
    except ValueError:
        raise InvalidRequestError("the query is not one", path="query", hint="Send name=value&...") from None
    included = [value for name, value in pairs if name in ("include", "include[]")]
    single = [(name, value) for name, value in pairs if name not in ("include", "include[]")]
    fields = dict(single)
    if len(fields) < len(single):
        raise InvalidRequestError("a field of the query is given twice", path="query")
    check_include(included)
    return Fields(fields), included
