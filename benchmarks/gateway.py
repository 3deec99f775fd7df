"""What the gateway costs: latency against a direct call of the same engine, and calls a second.

    python -m benchmarks.gateway [--calls 400] [--concurrency 32] [--tokens engine|token-in] [--pool sqlite|memory]

The engine is scripted, in a process of its own, and answers at once, so that what is measured is the gateway: identity,
matching, the record and its commit to SQLite (`synchronous=FULL`). Direct and through-the-gateway calls alternate in
one run, since a shared machine is not equally fast from one minute to the next. With `--pool memory` nothing is made
durable: the difference is what the commits cost.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import aiohttp

REPLY = "<think>\nshort\n</think>\n\n" + "word " * 24


def script(request: Any) -> str:
    """What the engine replies."""
    return REPLY


def start(*command: str) -> tuple[subprocess.Popen[str], str]:
    """A server process and the address that it announces."""
    process = subprocess.Popen(
        [sys.executable, "-m", *command], stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parent
    )
    assert process.stdout is not None
    for line in process.stdout:
        found = re.search(r"http://[0-9.]+:\d+", line)
        if found is not None:
            return process, found.group()
    raise SystemExit(f"{command[0]} ended before it said where it answers")


def conversation(turns: int) -> list[dict[str, str]]:
    """A history of that many turns."""
    messages = [{"role": "user", "content": "question " * 20}]
    for _ in range(turns):
        messages += [{"role": "assistant", "content": REPLY.split("</think>")[1].strip()}, messages[0]]
    return messages


async def call(session: aiohttp.ClientSession, url: str, body: bytes) -> float:
    """Seconds until the whole reply has come."""
    begun = time.perf_counter()
    async with session.post(url, data=body) as response:
        data = await response.read()
        if response.status != 200:
            raise SystemExit(f"{url} answered {response.status}: {data[:300]!r}")
    return time.perf_counter() - begun


def quantile(values: list[float], share: float) -> float:
    """In milliseconds."""
    return round(1000 * sorted(values)[min(len(values) - 1, int(len(values) * share))], 2)


async def measure(engine: str, gateway: str, calls: int, concurrency: int) -> dict[str, Any]:
    """Latencies one at a time, then throughput of both."""
    result: dict[str, Any] = {}
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        for name, stream, turns in (("plain", False, 0), ("plain, 20 turns", False, 20), ("streamed", True, 0)):
            asked = {"model": "scripted", "messages": conversation(turns), "stream": stream}
            same = {"logprobs": True, "top_logprobs": 0, "return_token_ids": True}
            direct_body, body = json.dumps({**asked, **same}).encode(), json.dumps(asked).encode()
            direct, through = [], []
            for number in range(calls + 20):
                direct.append(await call(session, engine + "/v1/chat/completions", direct_body))
                path = f"{gateway}/t/bench-{int(stream)}-{turns}-{number // 10}/v1/chat/completions"
                through.append(await call(session, path, body))
            direct, through = direct[20:], through[20:]
            result[name] = {
                "direct_p50_ms": quantile(direct, 0.5),
                "gateway_p50_ms": quantile(through, 0.5),
                "added_p50_ms": round(quantile(through, 0.5) - quantile(direct, 0.5), 2),
                "added_p99_ms": round(quantile(through, 0.99) - quantile(direct, 0.99), 2),
            }
        body = json.dumps({"model": "scripted", "messages": conversation(0)}).encode()
        for name, base in (("engine", engine), ("gateway", gateway + "/t/load-{}")):

            async def worker(number: int, base: str = base) -> None:
                for _ in range(calls // 4):
                    await call(session, base.format(number) + "/v1/chat/completions", body)

            begun = time.perf_counter()
            await asyncio.gather(*(worker(number) for number in range(concurrency)))
            seconds = time.perf_counter() - begun
            result[f"{name}_calls_per_second"] = round(concurrency * (calls // 4) / seconds)
    return result


def main() -> None:
    """Run it and print JSON."""
    parser = argparse.ArgumentParser(prog="benchmarks.gateway")
    parser.add_argument("--calls", type=int, default=400)
    parser.add_argument("--concurrency", type=int, default=32)
    parser.add_argument("--tokens", choices=["engine", "token-in"], default="engine")
    parser.add_argument("--pool", choices=["sqlite", "memory"], default="sqlite")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        pool = f"sqlite:///{Path(folder) / 'pool.db'}" if options.pool == "sqlite" else "memory://"
        processes = []
        try:
            engine, engine_url = start(
                "agentworld.testing.scripted_engine", "--script", "gateway:script", "--tokenizer", "pocket"
            )
            processes.append(engine)
            serve = ["agentworld", "serve", "--pool", pool, "--port", "0", "--driver", "builtin", "--model", "scripted"]
            serve += ["--upstream", engine_url, "--tokens", options.tokens, "--log-level", "warning"]
            if options.tokens == "token-in":
                from agentworld.engines.builtin.pocket_tokenizer import POCKET_TOKENIZER_PATH

                serve += ["--tokenizer", str(POCKET_TOKENIZER_PATH)]
            gateway, gateway_url = start(*serve)
            processes.append(gateway)
            result = asyncio.run(measure(engine_url, gateway_url, options.calls, options.concurrency))
        finally:
            for process in processes:
                process.send_signal(signal.SIGINT)
            for process in processes:
                process.wait(timeout=20)
    print(json.dumps({"tokens": options.tokens, "pool": options.pool, **result}, indent=2))


if __name__ == "__main__":
    main()
