"""Puts the dashboard's built page into a release, and refuses to make one without it."""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

STATIC = "src/agentworld/api/static"


class PageHook(BuildHookInterface):
    """For wheels; an editable installation serves the page from the checkout, once it is built there."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Before a wheel is made."""
        if version == "editable":
            return
        if not (Path(self.root) / STATIC / "index.html").is_file():
            raise RuntimeError("the dashboard is not built; run `make dashboard`, then build again")
        build_data["artifacts"].append(f"{STATIC}/")
