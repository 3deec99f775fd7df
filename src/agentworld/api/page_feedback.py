"""What a key of the scope feedback may say: what people think, under a name that cannot pass for another's."""

from __future__ import annotations

from collections.abc import Sequence

from agentworld.errors import ForbiddenError
from agentworld.records import Feedback

SOURCE = "page"
"""The source of it, alone or with a colon and more behind it, such as `page:user-7`."""
KINDS = ("rating", "comment", "correction")


def check_of_page(sent: Sequence[Feedback]) -> None:
    """ForbiddenError for labels, which open gates, for comparisons, and for the name of another source."""
    for number, one in enumerate(sent):
        path = f"feedback[{number}]"
        if one.kind not in KINDS:
            raise ForbiddenError(
                f"a key of the scope feedback gives {', '.join(KINDS)}, no {one.kind}",
                path=f"{path}.kind",
                hint="Give the rest from the app's server, with a key that may write",
            )
        if one.source != SOURCE and not one.source.startswith(f"{SOURCE}:"):
            raise ForbiddenError(
                f"what a key of the scope feedback says has the source {SOURCE}, or {SOURCE}:NAME",
                path=f"{path}.source",
            )
