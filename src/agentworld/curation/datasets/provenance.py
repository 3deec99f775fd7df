"""What rows of exports say of where they come from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from agentworld.errors import InvalidRequestError

PROVENANCE = "agentworld"
"""The column of exported rows that names version, trajectory and steps."""


class Provenance(msgspec.Struct, frozen=True, kw_only=True):
    """What an exported row says of where it comes from."""

    version: str
    trajectory_id: str
    step_ids: list[str] = []


def exported_provenance(row: Mapping[str, Any]) -> Provenance:
    """The provenance in a row of an export; InvalidRequestError where it has none."""
    found = row.get(PROVENANCE)
    try:
        if isinstance(found, str):
            return msgspec.json.decode(found, type=Provenance)
        return msgspec.convert(found, Provenance)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise InvalidRequestError(
            f"the row has no column {PROVENANCE!r} that says where it comes from ({error})",
            path=PROVENANCE,
            hint="Rows that `agentworld dataset export` wrote have one",
        ) from None
