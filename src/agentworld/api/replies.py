"""Replies of the control API: any text that a record holds, lone surrogates included."""

from __future__ import annotations

from typing import Any, TypeVar

from litestar import Response
from litestar.exceptions import ImproperlyConfiguredException
from litestar.serialization import default_serializer
from litestar.types import Serializer

from agentworld.records import exact_json

T = TypeVar("T")


class ExactResponse(Response[T]):
    """As the framework's, and where it refuses a lone surrogate, with that as its JSON escape."""

    def render(self, content: Any, media_type: str, enc_hook: Serializer = default_serializer) -> bytes:
        """The content as bytes."""
        try:
            return super().render(content, media_type, enc_hook)
        except ImproperlyConfiguredException as error:
            if not isinstance(error.__cause__, UnicodeEncodeError):
                raise
            return exact_json.encode_lenient(content)
