"""Generated tokens a second of the builtin engine over HTTP, at several concurrencies, beside one request at a time.

    python -m benchmarks.engine [--model pocket] [--threads 2] [--tokens 32] [--seconds 4] [--concurrency 1 16 64]

Prompts differ from request to request, so that nothing is won by sharing their beginnings.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import random
import sys
import time
from asyncio.subprocess import PIPE

import aiohttp


async def measure(url: str, concurrency: int, tokens: int, seconds: float, stream: bool) -> float:
    """Tokens a second with `concurrency` requests always under way, each of a 24-token prompt."""
    chance = random.Random(concurrency)
    numbers = itertools.count()
    produced = 0
    until = time.perf_counter() + seconds

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def worker() -> None:
            nonlocal produced
            while time.perf_counter() < until:
                body = {
                    "prompt": [chance.randrange(200) for _ in range(24)],
                    "max_tokens": tokens,
                    "ignore_eos": True,
                    "logprobs": 0,
                    "return_token_ids": True,
                    "seed": next(numbers),
                    "stream": stream,
                }
                async with session.post(f"{url}/v1/completions", json=body) as reply:
                    await reply.read()
                    reply.raise_for_status()
                produced += tokens

        started = time.perf_counter()
        await asyncio.gather(*(worker() for _ in range(concurrency)))
        return produced / (time.perf_counter() - started)


async def main() -> None:
    """Start an engine, measure, print a table."""
    parser = argparse.ArgumentParser(prog="benchmarks.engine")
    parser.add_argument("--model", default="pocket")
    parser.add_argument("--threads", default="2")
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 16, 64])
    options = parser.parse_args()
    engine = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "agentworld.engines.builtin",
        "--model", options.model, "--threads", options.threads, "--die-with-parent", stdout=PIPE,
    )  # fmt: skip
    assert engine.stdout is not None
    try:
        url = (await engine.stdout.readline()).decode().strip()
        await measure(url, 4, options.tokens, 1.0, False)
        base = await measure(url, 1, options.tokens, options.seconds, False)
        print(f"{'concurrency':>11}  {'plain tok/s':>11}  {'stream tok/s':>12}  {'speed-up':>8}")
        for concurrency in options.concurrency:
            plain = await measure(url, concurrency, options.tokens, options.seconds, False)
            stream = await measure(url, concurrency, options.tokens, options.seconds, True)
            print(f"{concurrency:>11}  {plain:>11.0f}  {stream:>12.0f}  {plain / base:>7.1f}x")
    finally:
        engine.terminate()
        await engine.wait()


if __name__ == "__main__":
    asyncio.run(main())
