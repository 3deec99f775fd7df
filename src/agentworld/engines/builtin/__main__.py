"""`python -m agentworld.engines.builtin ...` equals `agentworld engine ...`."""

from __future__ import annotations

import sys
from importlib import import_module


def main() -> None:
    """Run the command."""
    # By name: this module stands below the command line and only hands over to it.
    sys.exit(import_module("agentworld.cli").invoke(["engine", *sys.argv[1:]]))


if __name__ == "__main__":
    main()
