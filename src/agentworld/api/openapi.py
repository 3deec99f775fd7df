"""`python -m agentworld.api.openapi` prints the OpenAPI document of the control API."""

from __future__ import annotations

import json

from agentworld.api.app import ROUTES
from agentworld.api.docs import document


def render() -> str:
    """The document as text, the same on every run."""
    return json.dumps(document(ROUTES), indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    print(render(), end="")
