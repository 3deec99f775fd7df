"""The sections of `agentworld bench gateway`: what the gateway costs before an engine that costs nothing.

The engine replays prepared replies in a process of its own. Server processes have one core, the engine and the callers
the other, where there are two; capture and durable commit are on. Calls have prompts of 1,000 tokens and replies of 128
with log-probabilities, in a trajectory each.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from agentworld.bench import peers
from agentworld.bench.figure import Figure
from agentworld.bench.load import CallFailedError, Connection, Load, connect, load, post, quantile
from agentworld.bench.replay_engine import task_text
from agentworld.bench.servers import Cores, NotStartedError, Server, report, server
from agentworld.engines.tokenizer import TokenizerAdapter, load_tokenizer

Mode = Literal["engine", "token-in"]
CONCURRENCY = 64
PROMPT, LONG_PROMPT = 1_000, 50_000
TASKS = 64
LONG_TURNS = 4
LONG_TASKS = 8
_TURNS: dict[Mode, tuple[str, ...]] = {
    "engine": ("first turn", "first turn of a known task", "later turns"),
    "token-in": ("first render", "first render of a known task", "bridges"),
}
WARM_CALLS = 64
WORKER_ROUNDS = 3
_SYSTEM = {"role": "system", "content": "You solve the task that is set, with the tools that you have."}


@dataclass
class GatewayBench:
    """Where and how much to measure. `calls`: of each rate; `notes`: what was left out, and why."""

    folder: Path
    calls: int = 2_000
    tokenizer: str = "pocket"
    environments: Path = peers.ENVIRONMENTS
    peers: tuple[peers.Peer, ...] = peers.PEERS
    cores: Cores = field(default_factory=Cores)
    notes: list[str] = field(default_factory=list)
    _made: int = 0
    _texts: dict[tuple[int, bool], list[str]] = field(default_factory=dict)

    @contextlib.contextmanager
    def engine(self) -> Iterator[Server]:
        """The replaying engine."""
        command = [sys.executable, "-m", "agentworld.bench.replay_engine", "--tokenizer", self.tokenizer]
        with server(command, self.cores.rest) as running:
            yield running

    @contextlib.contextmanager
    def gateway(self, engine: Server, mode: Mode, workers: int = 1) -> Iterator[Server]:
        """A gateway with a new pool before the engine. Several workers have all cores."""
        self._made += 1
        pool = f"sqlite:///{self.folder / f'gateway-{self._made}.db'}"
        command = [sys.executable, "-m", "agentworld", "serve", "--pool", pool, "--port", "0", "--model", "replay"]
        command += ["--upstream", engine.url, "--tokens", mode, "--workers", str(workers)]
        if mode == "token-in":
            command += ["--tokenizer", self.tokenizer]
        with server(command, self.cores.server if workers == 1 else self.cores.all) as running:
            yield running

    def text(self, number: int, tokens: int, mode: Mode) -> str:
        """The question of task `number`."""
        kept = self._texts.setdefault((tokens, mode == "token-in"), [])
        if not kept:
            tokenizer: TokenizerAdapter | None = load_tokenizer(self.tokenizer) if mode == "token-in" else None
            kept += [task_text(each, tokens, tokenizer) for each in range(TASKS if tokens == PROMPT else LONG_TASKS)]
        return kept[number % len(kept)]

    def make(self, url: str, path: str, mode: Mode, *, stream: bool = False) -> Callable[[int], bytes]:
        """Requests by number, each in the trajectory that the path gets by it."""
        bodies = [
            body([_SYSTEM, {"role": "user", "content": self.text(number, PROMPT, mode)}], stream)
            for number in range(TASKS)
        ]
        return lambda number: post(url, path.format(number), bodies[number % TASKS])


class Rate(NamedTuple):
    """A load and the processor time that the server took for a call, in milliseconds."""

    load: Load
    cpu: float


def body(messages: list[dict[str, Any]], stream: bool = False) -> bytes:
    """The body of a chat call."""
    return msgspec.json.encode(
        {"model": "replay", "messages": messages, "stream": stream, "temperature": 1.0, "max_tokens": 256}
    )


def rate(running: Server, make: Callable[[int], bytes], calls: int, concurrency: int = CONCURRENCY) -> Rate:
    """Calls under load, after some that warm the server: more than connections, so that each worker has its share."""
    warm = min(max(WARM_CALLS, 2 * concurrency), calls)
    asyncio.run(load(running.url, lambda number: make(number + calls), warm, concurrency))
    before = running.cpu()
    found = asyncio.run(load(running.url, make, calls, concurrency))
    return Rate(found, 1000 * (running.cpu() - before) / calls)


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
                    own, whole = asyncio.run(_by_turns(engine.url, direct, gateway.url, through, calls))
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


async def _by_turns(
    engine: str, direct: Callable[[int], bytes], gateway: str, through: Callable[[int], bytes], calls: int
) -> tuple[list[float], list[float]]:
    """Seconds of calls of the engine and of the gateway."""
    own, whole = await connect(engine), await connect(gateway)
    found: tuple[list[float], list[float]] = ([], [])
    for number in range(calls + 20):
        for place, (connection, make) in enumerate(((own, direct), (whole, through))):
            seconds = await _seconds(connection, make(number))
            if number >= 20:
                found[place].append(seconds)
    own.close()
    whole.close()
    return found


async def _seconds(connection: Connection, request: bytes) -> float:
    reply = await connection.call(request)
    if reply.status != 200:
        raise CallFailedError(f"a call was answered with {reply.status}: {reply.body[:300]!r}")
    return reply.seconds


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
        messages: list[dict[str, Any]] = [_SYSTEM, {"role": "user", "content": text}]
        for turn in range(LONG_TURNS):
            sent = body(messages)
            place = later if turn else known if number % 2 else new
            place[0].append(await _seconds(own, post(engine, "/v1/chat/completions", sent)))
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
    """Processor time of a call with one worker and with two, each of which has 64 calls at once."""
    found: dict[int, list[float]] = {1: [], 2: []}
    with bench.engine() as engine:
        for _ in range(WORKER_ROUNDS):
            for count, seen in found.items():
                with bench.gateway(engine, "engine", count) as gateway:
                    make = bench.make(gateway.url, "/t/shared-{}/v1/chat/completions", "engine")
                    seen.append(rate(gateway, make, bench.calls * count, CONCURRENCY * count).cpu)
    times = [statistics.median(seen) for seen in found.values()]
    if not times[0]:
        bench.notes.append("two workers: this system does not tell the processor time of processes")
        return []
    rise = 100 * (times[1] / times[0] - 1)
    return [
        Figure("one worker: processor time", times[0], "ms a call"),
        Figure("two workers: processor time", times[1], "ms a call"),
        Figure("two workers: rise", rise, "%", required=15.0, better="less"),
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


def beside_peers(bench: GatewayBench) -> list[Figure]:
    """Calls a second of this gateway and of peers, in the same run with the same requests."""
    figures = []
    with bench.engine() as engine:
        with bench.gateway(engine, "engine") as gateway:
            ours = rate(gateway, bench.make(gateway.url, "/t/peer-{}/v1/chat/completions", "engine"), bench.calls)
        figures.append(Figure("agentworld: calls", ours.load.rate, "a second"))
        figures.append(Figure("agentworld: processor time", ours.cpu, "ms a call"))
        for peer in bench.peers:
            port = _free_port()
            begin = peers.start(peer, bench.environments, engine.url, port, bench.folder)
            if begin is None:
                bench.notes.append(f"{peer.title} is not installed: run benchmarks/peers/install.sh {peer.name}")
                continue
            try:
                url = f"http://127.0.0.1:{port}"
                with server(begin.command, bench.cores.server, url=url, environment=begin.environment) as running:
                    make = bench.make(running.url, begin.route(), "engine")
                    theirs = rate(running, make, max(bench.calls // 8, 1))
            except (NotStartedError, CallFailedError) as error:
                bench.notes.append(f"{peer.title} was not measured: {error.message[:500]}")
                continue
            figures += [
                Figure(f"{peer.title}: calls", theirs.load.rate, "a second"),
                Figure(f"{peer.title}: processor time", theirs.cpu, "ms a call"),
                Figure(f"times the calls of {peer.title}", ours.load.rate / theirs.load.rate, "x", required=peer.times),
            ]
            if ours.cpu:
                figures.append(Figure(f"its processor time over ours, {peer.title}", theirs.cpu / ours.cpu, "x"))
    return figures


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Section(NamedTuple):
    """One table: its name on the command line, its title, and what measures it."""

    name: str
    title: str
    measure: Callable[[GatewayBench], list[Figure]]


SECTIONS = [
    Section("throughput", f"{CONCURRENCY} calls at once, prompts of 1,000 and replies of 128 tokens", throughput),
    Section("latency", "one call at a time, beside calls of the engine itself", latency),
    Section("long", "prompts of 50,000 tokens, one call at a time", long),
    Section("workers", "one worker and two", workers),
    Section("stages", "where the processor time of a plain call goes", stages),
    Section("peers", "other gateways before the same engine", beside_peers),
]


def measure(bench: GatewayBench, names: Iterable[str]) -> Iterator[tuple[Section, list[Figure]]]:
    """The figures of the named sections, all where none is named, each as soon as it is there."""
    wanted = set(names)
    if hasattr(os, "sched_setaffinity") and bench.cores.rest:
        os.sched_setaffinity(0, bench.cores.rest)
    try:
        for section in SECTIONS:
            if not wanted or section.name in wanted:
                yield section, section.measure(bench)
    finally:
        if bench.cores.all:
            os.sched_setaffinity(0, bench.cores.all)
