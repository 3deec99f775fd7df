"""Where converted models and tokenizers are kept."""

from __future__ import annotations

import os
from pathlib import Path


def cache_directory() -> Path:
    """$AGENTWORLD_CACHE, else $XDG_CACHE_HOME/agentworld, else ~/.cache/agentworld."""
    own = os.environ.get("AGENTWORLD_CACHE")
    if own:
        return Path(own).expanduser()
    shared = os.environ.get("XDG_CACHE_HOME")
    return (Path(shared).expanduser() if shared else Path.home() / ".cache") / "agentworld"
