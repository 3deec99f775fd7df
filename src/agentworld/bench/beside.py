"""Other gateways, and a relay that does the least, before the same engine in the same run."""

from __future__ import annotations

import asyncio
import socket
import statistics
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager

from agentworld.bench import peers
from agentworld.bench.figure import Figure
from agentworld.bench.gateway_bench import GatewayBench, Rate, by_turns, rate
from agentworld.bench.load import CallFailedError, quantile
from agentworld.bench.servers import NotStartedError, Server, server

FLOOR_ROUNDS = 3
OURS, BARE = "agentworld", "the bare relay"


def beside_peers(bench: GatewayBench) -> list[Figure]:
    """Calls a second of this gateway and of peers, in the same run with the same requests. Machines change their speed
    within seconds, so each peer stands beside what this gateway did just before it and just after.
    """
    compared: list[Figure] = []
    with bench.engine() as engine:
        own = [_own(bench, engine)]
        for peer, theirs in _peers(bench, engine):
            own.append(_own(bench, engine))
            calls, cpu = (sum(each) / 2 for each in zip(*((one.load.rate, one.cpu) for one in own[-2:]), strict=True))
            compared += _rate(peer.title, theirs.load.rate, theirs.cpu)
            times = calls / theirs.load.rate
            compared.append(Figure(f"times the calls of {peer.title}", times, "x", required=peer.times))
            if cpu:
                compared.append(Figure(f"its processor time over ours, {peer.title}", theirs.cpu / cpu, "x"))
    rates, cpus = zip(*((one.load.rate, one.cpu) for one in own), strict=True)
    return _rate(OURS, statistics.median(rates), statistics.median(cpus)) + compared


def _own(bench: GatewayBench, engine: Server) -> Rate:
    """This gateway's rate, with a new pool."""
    with bench.gateway(engine, "engine") as gateway:
        return rate(gateway, bench.make(gateway.url, "/t/peer-{}/v1/chat/completions", "engine"), bench.calls)


def floor(bench: GatewayBench) -> list[Figure]:
    """What a call costs at least on this machine: a relay that only decodes, stores and answers, by turns with this
    gateway, and both beside the peers.
    """
    rates: dict[str, list[Rate]] = {BARE: [], OURS: []}
    added: dict[str, list[float]] = {BARE: [], OURS: []}
    figures = []
    with bench.engine() as engine:
        for _ in range(FLOOR_ROUNDS):
            for name, start in (BARE, bare_relay), (OURS, _gateway):
                with start(bench, engine) as running:
                    make = bench.make(running.url, "/t/floor-{}/v1/chat/completions", "engine")
                    rates[name].append(rate(running, make, bench.calls))
                    added[name].append(_added(bench, engine, running))
        calls = {name: statistics.median(each.load.rate for each in found) for name, found in rates.items()}
        cpu = {name: statistics.median(each.cpu for each in found) for name, found in rates.items()}
        alone = {name: statistics.median(found) for name, found in added.items()}
        for name in rates:
            figures += _rate(name, calls[name], cpu[name])
            figures.append(Figure(f"{name}: added P50 of one call at a time", alone[name], "ms"))
        figures.append(Figure(f"calls of {BARE} over ours", calls[BARE] / calls[OURS], "x"))
        if cpu[BARE]:
            figures.append(Figure(f"our processor time over that of {BARE}", cpu[OURS] / cpu[BARE], "x"))
        figures.append(Figure(f"our added P50 over that of {BARE}", alone[OURS] / alone[BARE], "x"))
        for peer, theirs in _peers(bench, engine):
            figures += _rate(peer.title, theirs.load.rate, theirs.cpu)
            for name in rates:
                times = calls[name] / theirs.load.rate
                required = peer.times if name == OURS else None
                figures.append(Figure(f"{name}: times the calls of {peer.title}", times, "x", required=required))
                if cpu[name]:
                    over = f"processor time of {peer.title} over that of {name}"
                    figures.append(Figure(over, theirs.cpu / cpu[name], "x"))
    return figures


def _gateway(bench: GatewayBench, engine: Server) -> AbstractContextManager[Server]:
    return bench.gateway(engine, "engine")


def bare_relay(bench: GatewayBench, engine: Server) -> AbstractContextManager[Server]:
    """The bare relay with a new file before the engine."""
    port = free_port()
    command = [sys.executable, "-m", "agentworld.bench.bare_relay", "--upstream", engine.url, "--port", str(port)]
    command += ["--database", str(bench.folder / f"relay-{port}.db")]
    return server(command, bench.cores.server, url=f"http://127.0.0.1:{port}")


def _added(bench: GatewayBench, engine: Server, running: Server) -> float:
    """By how many milliseconds the median of calls of the server is longer than that of calls of the engine."""
    direct = bench.make(engine.url, "/v1/chat/completions", "engine")
    through = bench.make(running.url, "/t/alone-{}/v1/chat/completions", "engine")
    own, whole = asyncio.run(by_turns(engine.url, direct, running.url, through, max(bench.calls // 5, 20)))
    return 1000 * (quantile(whole, 0.5) - quantile(own, 0.5))


def _rate(name: str, calls: float, cpu: float) -> list[Figure]:
    return [Figure(f"{name}: calls", calls, "a second"), Figure(f"{name}: processor time", cpu, "ms a call")]


def _peers(bench: GatewayBench, engine: Server) -> Iterator[tuple[peers.Peer, Rate]]:
    """What each installed peer does; the notes say why there is nothing of the others, and of those that fail."""
    for peer in bench.peers:
        port = free_port()
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
        yield peer, theirs


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
