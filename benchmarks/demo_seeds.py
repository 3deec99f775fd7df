"""Does GRPO help? The demo over several seeds: success on held-out tasks after fine-tuning and after GRPO.

    python -m benchmarks.demo_seeds [--seeds 3] [--out runs/demo-seeds]

For each task set it prints both success rates of every seed and the mean gain over all seeds. The standard error beside
it is the larger of two: that of the tasks (each rate's own, added as if the two were independent, though both policies
do the same tasks) and that of the seeds (spread of the gains over the root of their number). Exit code 1 where a gain
is not over two standard errors.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
from pathlib import Path


def main() -> int:
    """Run what is missing, print the table."""
    parser = argparse.ArgumentParser(prog="benchmarks.demo_seeds", description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("runs/demo-seeds"))
    parser.add_argument("--quick", action="store_true", help="the quick demo, to try the benchmark itself")
    options = parser.parse_args()
    results = []
    for seed in range(options.seeds):
        folder = options.out / f"seed-{seed}"
        command = [sys.executable, "-m", "agentworld", "demo", "--seed", str(seed), "--out", str(folder)]
        subprocess.run(command + (["--quick"] if options.quick else []), check=True)
        results.append(json.loads((folder / "metrics.json").read_text()))
    print(f"\n{'task set':<12} {'seed':>4} {'tasks':>6} {'fine-tuned':>16} {'after GRPO':>16} {'gain':>8}")
    enough = True
    for name in results[0]["success"]:
        gains, variances = [], []
        for seed, metrics in enumerate(results):
            before, after = metrics["success"][name]["fine_tuned"], metrics["success"][name]["improved"]
            gains.append(after["success"] - before["success"])
            variances.append(before["standard_error"] ** 2 + after["standard_error"] ** 2)
            print(f"{name:<12} {seed:>4} {after['tasks']:>6} {_rate(before):>16} {_rate(after):>16} {gains[-1]:>+8.3f}")
        mean = math.fsum(gains) / len(gains)
        error = math.sqrt(math.fsum(variances)) / len(gains)
        if len(gains) > 1:
            error = max(error, statistics.stdev(gains) / math.sqrt(len(gains)))
        enough = enough and mean > 2 * error
        print(
            f"{name:<12}  all {'':>6} {'':>16} {'':>16} {mean:>+8.3f} ± {error:.3f} = {mean / max(error, 1e-12):.1f} SE"
        )
    seconds = [sum(metrics["seconds"].values()) for metrics in results]
    print(f"seconds of each demo: {', '.join(f'{value:.0f}' for value in seconds)}")
    return 0 if enough else 1


def _rate(figures: dict[str, float]) -> str:
    return f"{figures['success']:.3f} ± {figures['standard_error']:.3f}"


if __name__ == "__main__":
    sys.exit(main())
