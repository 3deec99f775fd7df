"""Query parameters: every one known, given once, and numbers written as such."""

from __future__ import annotations

import re
from typing import Any

from litestar import Request

from agentworld.errors import InvalidRequestError

_NOT_PARAMETERS = {"state", "request", "body"}
_WHOLE_NUMBER = re.compile(r"-?[0-9]{1,19}")


async def check_parameters(request: Request[Any, Any, Any]) -> None:
    """A misspelt filter would change what a listing means, so it is an error; so is one that is given twice, and a
    number that is not written as a whole number of 64 bits.
    """
    if request.route_handler.opt.get("of_page"):
        return  # Addresses of the page have parameters of its own.
    fields = request.route_handler.parsed_fn_signature.parameters
    known = set(fields) - _NOT_PARAMETERS
    seen: set[str] = set()
    for name, value in request.query_params.multi_items():
        if name not in known:
            raise InvalidRequestError(
                f"There is no parameter {name!r} here",
                path=f"?{name}",
                hint=f"Known: {', '.join(sorted(known))}" if known else "This route takes none",
            )
        if name in seen:
            raise InvalidRequestError(f"The parameter {name!r} is given twice", path=f"?{name}")
        seen.add(name)
        if fields[name].annotation is int and not _fits(value):
            raise InvalidRequestError(
                f"{value[:40]!r} is no whole number of 64 bits", path=f"?{name}", hint="Write it in digits"
            )


def _fits(text: str) -> bool:
    return _WHOLE_NUMBER.fullmatch(text) is not None and -(2**63) <= int(text) < 2**63
