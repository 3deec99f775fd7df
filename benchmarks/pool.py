"""What a pool writes and keeps, beside a flat table in the same process: `agentworld bench pool` with its options.

python -m benchmarks.pool [--engine sqlite|postgresql://...] [--steps 6400] [--section write] [--json]
"""

from __future__ import annotations

import sys

from agentworld.cli import invoke

if __name__ == "__main__":
    sys.exit(invoke(["bench", "pool", *sys.argv[1:]]))
