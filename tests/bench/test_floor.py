"""`agentworld bench gateway --section floor` measures a relay that stores what was sampled before it answers."""

import asyncio
import sqlite3
from array import array

import msgspec
import pytest

from agentworld.bench import beside, gateway, peers
from agentworld.bench.beside import bare_relay
from agentworld.bench.gateway_bench import GatewayBench, body
from agentworld.bench.load import connect, post
from agentworld.bench.replay_engine import REPLY_TOKENS


async def ask(url: str, path: str) -> tuple[int, dict]:
    connection = await connect(url)
    said = {"role": "user", "content": "Task 3 of 20 tokens: say it"}
    reply = await connection.call(post(url, path, body([said])))
    connection.close()
    return reply.status, msgspec.json.decode(reply.body)


def test_the_bare_relay_stores_what_was_sampled_before_it_answers(tmp_path):
    bench = GatewayBench(folder=tmp_path)
    with bench.engine() as engine, bare_relay(bench, engine) as relay:
        # Replies take turns, so the engine itself gives the relay's second one at another place.
        first = asyncio.run(ask(relay.url, "/t/one/v1/chat/completions"))
        (database,) = tmp_path.glob("relay-*.db")
        with sqlite3.connect(database) as stored:
            rows = stored.execute("SELECT path, prompt_ids, reply_ids, logprobs, reply FROM calls").fetchall()
        second = asyncio.run(ask(engine.url, "/v1/chat/completions"))
    assert first[0] == second[0] == 200
    ((path, prompt_ids, reply_ids, logprobs, reply),) = rows
    assert path == "/t/one/v1/chat/completions"
    shown = first[1]["choices"][0]["message"]["content"]
    assert shown == reply
    assert shown != second[1]["choices"][0]["message"]["content"]
    assert list(array("i", prompt_ids)) == second[1]["prompt_token_ids"]
    assert len(array("i", reply_ids)) == len(array("f", logprobs)) == REPLY_TOKENS
    assert max(array("f", logprobs)) <= 0
    assert first[1]["usage"] == {"prompt_tokens": 20, "completion_tokens": REPLY_TOKENS}


def test_the_floor_is_measured_only_where_it_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(beside, "FLOOR_ROUNDS", 1)
    bench = GatewayBench(folder=tmp_path, calls=64, environments=tmp_path / "none")
    ((section, figures),) = gateway.measure(bench, ["floor"])
    assert section.name == "floor"
    named = {figure.name: figure.value for figure in figures}
    for name in (beside.BARE, beside.OURS):
        assert named[f"{name}: calls"] > 0
        assert f"{name}: added P50 of one call at a time" in named
    assert named["calls of the bare relay over ours"] == pytest.approx(
        named["the bare relay: calls"] / named["agentworld: calls"]
    )
    assert named["our processor time over that of the bare relay"] > 0
    assert [note.split(" is not")[0] for note in bench.notes] == [peer.title for peer in peers.PEERS]
    monkeypatch.setattr(gateway, "SECTIONS", [each._replace(measure=lambda bench: []) for each in gateway.SECTIONS])
    unasked = [each.name for each, _ in gateway.measure(bench, [])]
    assert unasked == [each.name for each in gateway.SECTIONS if each.name != "floor"]
