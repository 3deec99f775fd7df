"""The short benchmarks one after the other, or those named: `python -m benchmarks [NAME ...]`."""

from __future__ import annotations

import subprocess
import sys

SHORT = ("pool", "gateway", "engine")
LONG = ("demo_seeds", "merge_gpu", "dashboard", "data_path")


def main() -> int:
    """Run those that are named, or all the short ones; the exit code is that of the worst."""
    names = sys.argv[1:] or list(SHORT)
    unknown = [name for name in names if name not in SHORT + LONG]
    if unknown:
        print(f"no benchmark {unknown[0]!r}; there are {', '.join(SHORT + LONG)}", file=sys.stderr)
        return 2
    worst = 0
    for name in names:
        print(f"== {name}", flush=True)
        worst = max(worst, subprocess.run([sys.executable, "-m", f"benchmarks.{name}"], check=False).returncode)
    return worst


if __name__ == "__main__":
    sys.exit(main())
