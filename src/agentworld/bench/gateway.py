"""The sections of `agentworld bench gateway`: what the gateway costs before an engine that costs nothing.

The engine replays prepared replies in a process of its own. Server processes have one core, the engine and the callers
the other, where there are two; capture and durable commit are on. Calls have prompts of 1,000 tokens and replies of 128
with log-probabilities, in a trajectory each.
"""

from __future__ import annotations

import asyncio
import functools
import os
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from agentworld.bench.beside import beside_peers, floor
from agentworld.bench.figure import Figure
from agentworld.bench.gateway_bench import (
    CONCURRENCY,
    LONG_PROMPT,
    LONG_TASKS,
    SYSTEM,
    GatewayBench,
    Mode,
    body,
    by_turns,
    cpu_beside,
    rate,
    seconds,
)
from agentworld.bench.load import CallFailedError, connect, post, quantile
from agentworld.bench.servers import Server, report

LONG_TURNS = 4
_TURNS: dict[Mode, tuple[str, ...]] = {
    "engine": ("first turn", "first turn of a known task", "later turns"),
    "token-in": ("first render", "first render of a known task", "bridges"),
}
WORKER_ROUNDS = 3


def throughput(bench: GatewayBench) -> list[Figure]:
    """Calls and events a second at concurrency 64, in both token modes."""
    figures = []
    with bench.engine() as engine:
        for mode in ("engine", "token-in"):
            for stream in (False, True):
                kind = f"{'streamed' if stream else 'plain'}, {mode}"
                with bench.gateway(engine, mode) as gateway:
                    calls = bench.calls if not stream else max(bench.calls // 4, 1)
                    make = bench.make(gateway.url, "/t/call-{}/v1/chat/completions", mode, stream=stream)
                    found = rate(gateway, make, calls)
                figures += [
                    Figure(f"{kind}: calls", found.load.rate, "a second"),
                    Figure(f"{kind}: processor time", found.cpu, "ms a call"),
                    Figure(f"{kind}: P50", found.load.quantile(0.5), "ms"),
                ]
                if stream:
                    required = 10_000.0 if mode == "engine" else None
                    events = found.load.events / found.load.seconds
                    figures.append(Figure(f"{kind}: events", events, "a second", required=required))
    return figures


def latency(bench: GatewayBench) -> list[Figure]:
    """What the gateway adds to a call where there is no other, by turns with calls of the engine itself."""
    figures = []
    calls = max(bench.calls // 5, 20)
    with bench.engine() as engine:
        for mode in ("engine", "token-in"):
            with bench.gateway(engine, mode) as gateway:
                for stream in (False, True):
                    kind = f"{'streamed' if stream else 'plain'}, {mode}"
                    path = f"/t/alone-{int(stream)}-{{}}/v1/chat/completions"
                    through = bench.make(gateway.url, path, mode, stream=stream)
                    direct = bench.make(engine.url, "/v1/chat/completions", mode, stream=stream)
                    own, whole = asyncio.run(by_turns(engine.url, direct, gateway.url, through, calls))
                    required = 1.5 if (mode, stream) == ("engine", False) else None
                    for share, name in ((0.5, "P50"), (0.99, "P99")):
                        alone, added = (
                            1000 * quantile(own, share),
                            1000 * (quantile(whole, share) - quantile(own, share)),
                        )
                        bound = required if name == "P50" else None
                        figures.append(
                            Figure(f"{kind}: added {name}", added, "ms", beside=alone, required=bound, better="less")
                        )
    return figures


def long(bench: GatewayBench) -> list[Figure]:
    """What the gateway adds to calls with prompts of 50,000 tokens, by turn of their conversation. Two rollouts of each
    task follow each other: the second one's prompt is known to the pool, and in token-in its text has been encoded.
    """
    figures = []
    conversations = min(max(bench.calls // 200, 2), 2 * LONG_TASKS)
    with bench.engine() as engine:
        for mode in ("engine", "token-in"):
            with bench.gateway(engine, mode) as gateway:
                found = asyncio.run(_conversations(bench, engine.url, gateway.url, mode, conversations))
            for name, (own, whole) in zip(_TURNS[mode], found, strict=True):
                bound = 15.0 if "render" not in name else None
                alone, added = 1000 * quantile(own, 0.5), 1000 * (quantile(whole, 0.5) - quantile(own, 0.5))
                figures.append(
                    Figure(f"{name}, {mode}: added P50", added, "ms", beside=alone, required=bound, better="less")
                )
    return figures


async def _conversations(
    bench: GatewayBench, engine: str, gateway: str, mode: Mode, count: int
) -> list[tuple[list[float], list[float]]]:
    """Seconds of first turns of new tasks, of known ones, and of later turns, each by (engine, gateway)."""
    own, whole = await connect(engine), await connect(gateway)
    found: list[tuple[list[float], list[float]]] = [([], []), ([], []), ([], [])]
    new, known, later = found
    for number in range(count):
        text = bench.text(number // 2, LONG_PROMPT, mode)
        messages: list[dict[str, Any]] = [SYSTEM, {"role": "user", "content": text}]
        for turn in range(LONG_TURNS):
            sent = body(messages)
            place = later if turn else known if number % 2 else new
            place[0].append(await seconds(own, post(engine, "/v1/chat/completions", sent)))
            reply = await whole.call(post(gateway, f"/t/long-{number}/v1/chat/completions", sent))
            if reply.status != 200:
                raise CallFailedError(f"a long call was answered with {reply.status}: {reply.body[:300]!r}")
            place[1].append(reply.seconds)
            said = msgspec.json.decode(reply.body)["choices"][0]["message"]
            messages += [
                {"role": "assistant", "content": said["content"]},
                {"role": "user", "content": f"Go on {turn}."},
            ]
    own.close()
    whole.close()
    return found


def workers(bench: GatewayBench) -> list[Figure]:
    """Processor time of a call with one worker and with two, each of which has 64 calls at once, and with two servers
    that share nothing but the machine.
    """
    found: dict[int, list[float]] = {1: [], 2: []}
    apart: list[float] = []

    def path_of(running: Server) -> Callable[[int], bytes]:
        return bench.make(running.url, "/t/shared-{}/v1/chat/completions", "engine")

    with bench.engine() as engine:
        for _ in range(WORKER_ROUNDS):
            for count, seen in found.items():
                with bench.gateway(engine, "engine", count) as gateway:
                    seen.append(rate(gateway, path_of(gateway), bench.calls * count, CONCURRENCY * count).cpu)
            start = functools.partial(bench.gateway, engine, "engine", spread=True)
            with start() as one, start() as other:
                apart.append(cpu_beside((one, other), path_of, bench.calls))
    times = [statistics.median(seen) for seen in found.values()]
    if not times[0]:
        bench.notes.append("two workers: this system does not tell the processor time of processes")
        return []
    rise, alone = 100 * (times[1] / times[0] - 1), statistics.median(apart)
    return [
        Figure("one worker: processor time", times[0], "ms a call"),
        Figure("two workers: processor time", times[1], "ms a call"),
        Figure("two workers: rise", rise, "%", required=15.0, better="less"),
        Figure("two servers with a pool each: processor time", alone, "ms a call"),
        Figure("two servers with a pool each: rise", 100 * (alone / times[0] - 1), "%"),
    ]


def stages(bench: GatewayBench) -> list[Figure]:
    """Where the processor time of a plain call goes, by calls at once, and what the HTTP server before it adds."""
    calls = max(bench.calls // 2, 20)
    bench._made += 1
    pool = f"sqlite:///{bench.folder / f'gateway-{bench._made}.db'}"
    with bench.engine() as engine:
        command = [sys.executable, "-m", "agentworld.bench.stages", "--upstream", engine.url, "--pool", pool]
        found = msgspec.json.decode(
            report([*command, "--calls", str(calls)], bench.cores.server), type=dict[str, dict[str, float]]
        )
        with bench.gateway(engine, "engine") as gateway:
            whole = rate(gateway, bench.make(gateway.url, "/t/staged-{}/v1/chat/completions", "engine"), calls).cpu
    figures = [
        Figure(f"{'one call at a time' if at_once == '1' else f'{at_once} at once'}: {stage}", value, "ms a call")
        for at_once, by_stage in found.items()
        for stage, value in by_stage.items()
    ]
    if whole:
        figures.append(Figure(f"{CONCURRENCY} at once, behind the HTTP server: in all", whole, "ms a call"))
    return figures


class Section(NamedTuple):
    """One table: its name on the command line, its title, and what measures it. `unasked`: also where none is named."""

    name: str
    title: str
    measure: Callable[[GatewayBench], list[Figure]]
    unasked: bool = True


SECTIONS = [
    Section("throughput", f"{CONCURRENCY} calls at once, prompts of 1,000 and replies of 128 tokens", throughput),
    Section("latency", "one call at a time, beside calls of the engine itself", latency),
    Section("long", "prompts of 50,000 tokens, one call at a time", long),
    Section("workers", "one worker and two", workers),
    Section("stages", "where the processor time of a plain call goes", stages),
    Section("peers", "other gateways before the same engine", beside_peers),
    # Measures the peers once more.
    Section("floor", "a relay that does the least, this gateway and others before the same engine", floor, False),
]


def measure(bench: GatewayBench, names: Iterable[str]) -> Iterator[tuple[Section, list[Figure]]]:
    """The figures of the named sections, or where none is named of nearly all, each as soon as it is there."""
    wanted = set(names)
    if hasattr(os, "sched_setaffinity") and bench.cores.rest:
        os.sched_setaffinity(0, bench.cores.rest)
    try:
        for section in SECTIONS:
            if section.name in wanted or (not wanted and section.unasked):
                yield section, section.measure(bench)
    finally:
        if bench.cores.all:
            os.sched_setaffinity(0, bench.cores.all)
