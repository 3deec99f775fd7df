"""`agentworld bench gateway` measures whole calls, captured token for token, by servers that end with it."""

import asyncio
import itertools
import os
import sys

import msgspec
import pytest

from agentworld.bench import gateway as measured
from agentworld.bench import peers, stages
from agentworld.bench.figure import Figure
from agentworld.bench.gateway_bench import GatewayBench, body
from agentworld.bench.load import CallFailedError, connect, load, post
from agentworld.bench.replay_engine import REPLY_TOKENS, TURN_TOKENS
from agentworld.bench.servers import NotStartedError, report, server
from agentworld.capture.looks import Looks
from agentworld.cli import invoke
from agentworld.pool import open_store


async def talk(bench, url, mode, turns):
    """A streamed call in one trajectory, and a conversation in another."""
    connection = await connect(url)
    messages = [{"role": "user", "content": bench.text(1, 1_000, mode)}]
    streamed = await connection.call(post(url, "/t/streamed/v1/chat/completions", body(messages, True)))
    assert streamed.status == 200
    for _ in range(turns):
        reply = await connection.call(post(url, "/t/plain/v1/chat/completions", body(messages)))
        assert reply.status == 200
        said = msgspec.json.decode(reply.body)["choices"][0]["message"]
        messages += [{"role": "assistant", "content": said["content"]}, {"role": "user", "content": "Go on."}]
    connection.close()
    return streamed.events


@pytest.mark.parametrize("mode", ["engine", "token-in"])
def test_what_is_measured_is_captured(tmp_path, mode):
    bench = GatewayBench(folder=tmp_path, calls=64)
    with bench.engine() as engine, bench.gateway(engine, mode) as gateway:
        events = asyncio.run(talk(bench, gateway.url, mode, 3))
        used = gateway.cpu()
        with pytest.raises(CallFailedError, match="answered 400"):
            asyncio.run(load(gateway.url, lambda _: post(gateway.url, "/v1/chat/completions", b"{}"), 1, 1))
    assert events > REPLY_TOKENS / 2
    assert used > 0 or sys.platform != "linux"
    with pytest.raises(ConnectionError):
        asyncio.run(connect(gateway.url))
    pool = open_store(f"sqlite:///{tmp_path / 'gateway-1.db'}")
    try:
        steps = pool.list_steps(include=("tokens", "logprobs")).items
        assert len(steps) == 4
        for step in steps:
            assert step.excluded_reason is None
            assert step.fork_reason is None
            assert len(step.response_ids) == len(step.response_logprobs) == REPLY_TOKENS
        turns = sorted((step for step in steps if step.trajectory_id == "plain"), key=lambda step: step.step_index)
        for before, after in itertools.pairwise(turns):
            known = [*before.prompt_ids, *before.response_ids]
            assert after.prompt_ids[: len(known)] == known
        if mode == "engine":
            lengths = [len(step.prompt_ids) for step in turns]
            assert lengths == [1_000 + turn * (REPLY_TOKENS + TURN_TOKENS) for turn in range(3)]
    finally:
        pool.close()


def test_a_section_gives_its_figures_and_says_what_it_left_out(tmp_path):
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    bench = GatewayBench(folder=tmp_path, calls=64, environments=tmp_path / "none")
    found = {section.name: figures for section, figures in measured.measure(bench, ["peers"])}
    assert list(found) == ["peers"]
    assert all(figure.value > 0 for figure in found["peers"])
    assert [figure.name for figure in found["peers"]] == ["agentworld: calls", "agentworld: processor time"]
    assert bench.notes == [
        f"{peer.title} is not installed: run benchmarks/peers/install.sh {peer.name}" for peer in peers.PEERS
    ]
    if cores is not None:
        assert os.sched_getaffinity(0) == cores


def test_a_server_that_does_not_start_says_why():
    with (
        pytest.raises(NotStartedError, match="no engine today"),
        server([sys.executable, "-c", "raise SystemExit('no engine today')"], []),
    ):
        pass


def test_tables_say_what_falls_short(monkeypatch, tmp_path, capsys):
    figures = [Figure("calls", 5.0, "a second", required=7.0), Figure("added", 1.0, "ms", 2.0, 1.5, "less")]
    section = measured.Section("latency", "one call", lambda bench: figures)
    monkeypatch.setattr(measured, "SECTIONS", [section])
    assert invoke(["bench", "gateway", "--folder", str(tmp_path)]) == 1
    said = capsys.readouterr().out
    assert "MISSED" in said
    assert ">= 7" in said
    assert "<= 1.5" in said
    assert list(tmp_path.iterdir()) == []


def test_unknown_sections_are_named(capsys):
    assert invoke(["bench", "gateway", "--section", "nonsense"]) == 2
    assert "throughput" in capsys.readouterr().err


@pytest.mark.parametrize("peer", peers.PEERS)
def test_peers_are_started_by_their_own_environment(peer, tmp_path):
    executable = tmp_path / peer.name / "bin" / peer.executable
    assert peers.start(peer, tmp_path, "http://127.0.0.1:1", 2, tmp_path) is None
    executable.parent.mkdir(parents=True)
    executable.touch()
    begin = peers.start(peer, tmp_path, "http://127.0.0.1:1", 2, tmp_path)
    assert begin.command[0] == str(executable)
    assert "2" in begin.command


def test_each_stage_of_a_call_is_on_the_clock(tmp_path):
    bench = GatewayBench(folder=tmp_path)
    with bench.engine() as engine:
        command = [sys.executable, "-m", "agentworld.bench.stages", "--calls", "4", "--upstream", engine.url]
        printed = report([*command, "--pool", f"sqlite:///{tmp_path / 'pool.db'}"], bench.cores.all)
    found = msgspec.json.decode(printed, type=dict[str, dict[str, float]])
    assert list(found) == [str(at_once) for at_once in stages.CONCURRENCIES]
    for by_stage in found.values():
        assert by_stage.keys() == {stages.WHOLE, stages.LOOP, stages.OTHERS, *(stage for stage, _, _ in stages.STAGES)}
        # Looks go to threads for a while where the machine is so busy that each takes long.
        assert all(by_stage[stage] > 0 for stage, owner, _ in stages.STAGES if owner is not Looks)
    with pytest.raises(CallFailedError, match="nothing to see"):
        report([sys.executable, "-c", "import sys; sys.exit('nothing to see')"], bench.cores.all)


def test_two_workers_stand_beside_two_servers_that_share_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(measured, "WORKER_ROUNDS", 1)
    ((_, figures),) = measured.measure(GatewayBench(folder=tmp_path, calls=64), ["workers"])
    named = {figure.name: figure for figure in figures}
    for kind in ("two workers", "two servers with a pool each"):
        beside = named[f"{kind}: processor time"].value / named["one worker: processor time"].value
        assert named[f"{kind}: rise"].value == pytest.approx(100 * (beside - 1))
    assert named["two workers: rise"].required == 15
    assert named["two servers with a pool each: rise"].required is None
    calls = []
    for number in range(1, 5):
        pool = open_store(f"sqlite:///{tmp_path / f'gateway-{number}.db'}")
        calls.append(pool.stats().steps)
        pool.close()
    # One worker, two, and each of the two servers: with what warmed them.
    assert calls == [128, 256, 128, 128]
