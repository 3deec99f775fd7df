"""What `agentworld bench gateway` measures with: an engine that costs nothing, servers before it, requests, rates."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from agentworld.bench import peers
from agentworld.bench.load import CallFailedError, Connection, Load, connect, load, post
from agentworld.bench.replay_engine import task_text
from agentworld.bench.servers import Cores, Server, server
from agentworld.engines.tokenizer import TokenizerAdapter, load_tokenizer

Mode = Literal["engine", "token-in"]
CONCURRENCY = 64
PROMPT, LONG_PROMPT = 1_000, 50_000
TASKS, LONG_TASKS = 64, 8
WARM_CALLS, WARM_TURNS = 64, 20
SYSTEM = {"role": "system", "content": "You solve the task that is set, with the tools that you have."}


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
    def gateway(self, engine: Server, mode: Mode, workers: int = 1, *, spread: bool = False) -> Iterator[Server]:
        """A gateway with a new pool before the engine. Several workers have all cores, and so has one with `spread`."""
        self._made += 1
        pool = f"sqlite:///{self.folder / f'gateway-{self._made}.db'}"
        command = [sys.executable, "-m", "agentworld", "serve", "--pool", pool, "--port", "0", "--model", "replay"]
        command += ["--upstream", engine.url, "--tokens", mode, "--workers", str(workers)]
        if mode == "token-in":
            command += ["--tokenizer", self.tokenizer]
        with server(command, self.cores.all if spread or workers > 1 else self.cores.server) as running:
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
            body([SYSTEM, {"role": "user", "content": self.text(number, PROMPT, mode)}], stream)
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
    asyncio.run(load(running.url, shifted(make, calls), warm, concurrency))
    before = running.cpu()
    found = asyncio.run(load(running.url, make, calls, concurrency))
    return Rate(found, 1000 * (running.cpu() - before) / calls)


def cpu_beside(servers: Sequence[Server], make: Callable[[Server], Callable[[int], bytes]], calls: int) -> float:
    """Milliseconds of processor time of a call, while each of the servers has 64 at once, after some that warm them."""

    makers = [make(running) for running in servers]
    warming = [shifted(each, calls) for each in makers]

    async def all_at_once(requests: Sequence[Callable[[int], bytes]], count: int) -> None:
        pairs = zip(servers, requests, strict=True)
        await asyncio.gather(*(load(running.url, each, count, CONCURRENCY) for running, each in pairs))

    asyncio.run(all_at_once(warming, min(2 * CONCURRENCY, calls)))
    before = sum(running.cpu() for running in servers)
    asyncio.run(all_at_once(makers, calls))
    return 1000 * (sum(running.cpu() for running in servers) - before) / (calls * len(servers))


def shifted(make: Callable[[int], bytes], by: int) -> Callable[[int], bytes]:
    """The requests from number `by` on."""
    return lambda number: make(number + by)


async def by_turns(
    engine: str, direct: Callable[[int], bytes], gateway: str, through: Callable[[int], bytes], calls: int
) -> tuple[list[float], list[float]]:
    """Seconds of calls of the engine and of a gateway, one at a time, after some of each that are not counted."""
    own, whole = await connect(engine), await connect(gateway)
    found: tuple[list[float], list[float]] = ([], [])
    for number in range(calls + WARM_TURNS):
        for place, (connection, make) in enumerate(((own, direct), (whole, through))):
            took = await seconds(connection, make(number))
            if number >= WARM_TURNS:
                found[place].append(took)
    own.close()
    whole.close()
    return found


async def seconds(connection: Connection, request: bytes) -> float:
    """How long a call takes; CallFailedError where it fails."""
    reply = await connection.call(request)
    if reply.status != 200:
        raise CallFailedError(f"a call was answered with {reply.status}: {reply.body[:300]!r}")
    return reply.seconds
