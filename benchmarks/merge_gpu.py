"""Merging on a GPU: passes over token trees by FlexAttention beside flat rows, as JSON, in under three minutes.

python -m benchmarks.merge_gpu [--out merge_gpu.json] [--device cuda] [--scale 4] [--hidden 1024] [--layers 16]

The model has random weights of Qwen3's kind, in bfloat16 on CUDA. Each of the shapes of `agentworld bench merge` has
its tokens, speed-up beside the bound by operations, peak memory beside flat, and the largest difference of
log-probabilities. What does not fit into --seconds is left out and named. Exit code 1 where a shape falls short.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from agentworld.bench.merge_shapes import UNSHARED, shapes
from agentworld.merge.verify import verify_merging
from agentworld.trainers.measuring import Comparison, compare, random_model
from agentworld.trainers.objective import VERIFIED_TOKENS

FRACTION = 0.8  # of the bound that is required


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.merge_gpu", description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda", help="cuda, cuda:1, or cpu")
    parser.add_argument("--out", type=Path, default=Path("merge_gpu.json"), help="where the JSON goes")
    parser.add_argument("--scale", type=float, default=4.0, help="factor of the lengths of the shapes")
    parser.add_argument("--hidden", type=int, default=1024, help="width of the model, a multiple of 64")
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--vocabulary", type=int, default=32_768)
    parser.add_argument("--tokens", type=int, default=16_384, help="of a micro-batch, padded or of its tree")
    parser.add_argument("--repeats", type=int, default=5, help="passes each way")
    parser.add_argument("--seconds", type=float, default=150.0, help="after which no further shape is begun")
    return parser.parse_args(given)


def main(given: Sequence[str] | None = None) -> int:
    """Measure every shape; 1 where one falls short or was left out, 2 where there is no such device."""
    chosen = arguments(given)
    device = torch.device(chosen.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        print("no CUDA device here: name another with --device", file=sys.stderr)
        return 2
    began = time.monotonic()
    model = random_model(device=chosen.device, hidden=chosen.hidden, layers=chosen.layers, vocabulary=chosen.vocabulary)
    found: dict[str, dict[str, Any]] = {}
    left_out, verified = [], None
    for name, rows in shapes(chosen.vocabulary, chosen.scale).items():
        if time.monotonic() - began > chosen.seconds:
            left_out.append(name)
            continue
        if verified is None:
            verified = verify_merging(model, [row.ids for row in rows], window=VERIFIED_TOKENS)
            print(verified.line(), flush=True)
        result = compare(model, rows, tokens=chosen.tokens, repeats=chosen.repeats)
        found[name] = described(result, shared=name != UNSHARED)
        print(line(name, found[name]), flush=True)
    short = [name for name, each in found.items() if not each["met"]]
    report = {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or "cpu",
        "torch": torch.__version__,
        "parameters": sum(weights.numel() for weights in model.parameters()),
        "dtype": str(next(model.parameters()).dtype).removeprefix("torch."),
        "settings": {name: str(value) if isinstance(value, Path) else value for name, value in vars(chosen).items()},
        "verified": None if verified is None else verified._asdict(),
        "shapes": found,
        "left_out": left_out,
        "short": short,
        "seconds": time.monotonic() - began,
    }
    chosen.out.write_text(json.dumps(report, indent=2) + "\n")
    for kind, names in (("falls short", short), ("left out", left_out)):
        if names:
            print(f"{kind}: {', '.join(names)}", file=sys.stderr)
    return 1 if short or left_out else 0


def described(found: Comparison, *, shared: bool) -> dict[str, Any]:
    """A comparison as JSON, and whether it is as required: near the bound, below flat's memory; or not slower."""
    met = found.share >= FRACTION and found.memory < 1.0 if shared else found.speedup >= 0.95
    return {
        "ratio": found.ratio,
        "speedup": found.speedup,
        "bound": found.bound,
        "share_of_bound": found.share,
        "memory_of_flat": found.memory,
        "difference": found.difference,
        "merged_by_choice": found.merged.merged,
        "met": met,
        **{
            name: {"seconds": passes.seconds, "peak_bytes": passes.peak, "tokens": passes.tokens}
            for name, passes in (("flat", found.flat), ("merged", found.merged))
        },
        "operations": {
            name: {"linear": each.linear, "attention": each.attention, "vocabulary": each.vocabulary}
            for name, each in (("flat", found.flat_cost), ("merged", found.merged_cost))
        },
    }


def line(name: str, found: dict[str, Any]) -> str:
    """One shape for a terminal."""
    share, memory = 100 * found["share_of_bound"], 100 * found["memory_of_flat"]
    return (
        f"{name}: C {found['ratio']:.2f}, {found['speedup']:.2f} times as fast, {share:.0f}% of the bound of "
        f"{found['bound']:.2f}, {memory:.0f}% of the memory, log-probabilities differ by {found['difference']:.1e}"
        f"{'' if found['met'] else ' (falls short)'}"
    )


if __name__ == "__main__":
    sys.exit(main())
