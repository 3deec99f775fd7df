"""Mixed turns, sampling by channel, and judges and teachers beside the policy."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import aiohttp
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentworld.config import MixSettings, ServeSettings, convert
from agentworld.errors import ConfigError
from agentworld.gateway import create_gateway
from agentworld.gateway.mixing import Draws, Mix, open_mixes, turn_of
from agentworld.gateway.models import Models
from agentworld.pool import open_store
from agentworld.records import Message, NewTrajectory, Policy
from agentworld.testing import ScriptedEngine, ScriptedReply
from agentworld.testing.app_server import AppServer

from .harness import Harness


def settings(text: dict[str, Any]) -> ServeSettings:
    return convert(text, ServeSettings, "test")


def mix(shares: dict[str, Any], seed: int = 0) -> Mix:
    models = [{"name": name, "upstream": "http://a:1"} for name in ("base", *shares)]
    made = settings({"models": models, "mix": [{"name": "mixed", "base": "base", "shares": shares, "seed": seed}]})
    return open_mixes(made.mix, made.models)["mixed"]


def test_shares_are_lines_between_their_points() -> None:
    made = mix({"t": [[10, 0.5], [20, 0.1], [40, 0.3]]})
    found = [made.shares(version)["t"] for version in (0, 10, 15, 20, 30, 40, 99)]
    assert found == pytest.approx([0.5, 0.5, 0.3, 0.1, 0.2, 0.3, 0.3])
    assert mix({"t": [[5, 0.25]]}).shares(1000) == {"t": 0.25}


def test_draws_follow_the_shares() -> None:
    made = mix({"a": [[0, 0.5], [10, 0.0]], "b": [[0, 0.25]]})
    early = Counter(made.draw(f"t{number}", 3, 0).model for number in range(4000))
    assert {name: count / 4000 for name, count in early.items()} == pytest.approx(
        {"a": 0.5, "b": 0.25, "base": 0.25}, abs=0.03
    )
    late = Counter(made.draw(f"t{number}", 3, 10).model for number in range(4000))
    assert set(late) == {"b", "base"}
    assert made.draw("t0", 0, 0).probability in (0.5, 0.25)
    assert mix({"a": [[0, 1.0]]}).draw("t", 0, 5).model == "a"
    assert mix({"a": [[0, 0.0]]}).draw("t", 0, 5).model == "base"


@given(st.text(max_size=20), st.integers(0, 1000), st.integers(0, 50), st.integers(0, 3))
def test_every_gateway_draws_alike(trajectory: str, turn: int, version: int, seed: int) -> None:
    shares = {"a": [[0, 0.5], [10, 0.1]], "b": [[0, 0.25]]}
    assert mix(shares, seed).draw(trajectory, turn, version) == mix(shares, seed).draw(trajectory, turn, version)


def test_turns_trajectories_and_seeds_are_drawn_apart() -> None:
    def drawn(seed: int, trajectory: str) -> list[str]:
        return [mix({"a": [[0, 0.5]]}, seed).draw(trajectory, turn, 0).model for turn in range(64)]

    assert drawn(0, "t1") != drawn(0, "t2")
    assert drawn(0, "t1") != drawn(1, "t1")
    assert set(drawn(0, "t1")) == {"a", "base"}


def test_a_turn_is_what_the_messages_say() -> None:
    said = [Message(role=role, content="x") for role in ("system", "user", "assistant", "tool", "assistant", "user")]
    assert turn_of(said) == 2


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"base": "nobody"}, "'nobody', which is not there"),
        ({"shares": {"nobody": [[0, 0.5]]}}, "'nobody', which is not there"),
        ({"shares": {"base": [[0, 0.5]]}}, "gives its base a share"),
        ({"shares": {"t": []}}, "points of different versions"),
        ({"shares": {"t": [[0, 0.5], [0, 0.6]]}}, "points of different versions"),
        ({"shares": {"t": [[0, 1.5]]}}, "Expected `float` <= 1"),
        ({"shares": {"t": [[-1, 0.5]]}}, "Expected `int` >= 0"),
        ({"shares": {"t": [[0, 0.0], [10, 0.8]], "u": [[0, 0.0], [5, 0.5], [10, 0.5]]}}, "add up to 1.3 at version 10"),
        ({"name": "t"}, "'t' of a mix is taken"),
    ],
    ids=str,
)
def test_mixes_that_cannot_be(change: dict[str, Any], said: str) -> None:
    models = [{"name": name, "upstream": "http://a:1"} for name in ("base", "t", "u")]
    one = {"name": "mixed", "base": "base", "shares": {"t": [[0, 0.5]]}, **change}
    with pytest.raises(ConfigError, match=said):
        Models(settings({"models": models, "mix": [one]}))


@asynccontextmanager
async def several(serve: dict[str, Any], **models: dict[str, Any]) -> AsyncIterator[tuple[Harness, dict[str, Any]]]:
    """A gateway with models of these names and settings, each on an engine that answers with the model's name."""
    async with AsyncExitStack() as stack:
        engines = {}
        tables = []
        for name, more in models.items():
            engine = await stack.enter_async_context(ScriptedEngine(name, model=name))
            engines[name] = engine
            tables.append({"name": name, "upstream": engine.url, "driver": "builtin", "tokens": "engine", **more})
        store = open_store("memory://")
        gateway = create_gateway(settings({"models": tables, **serve}), store)
        server = await stack.enter_async_context(AppServer(gateway))
        http = await stack.enter_async_context(aiohttp.ClientSession())
        harness = Harness(next(iter(engines.values())), gateway, store, server.url, http)
        stack.push_async_callback(harness.close)
        yield harness, engines


async def turns(gateway: Harness, trajectory: str, count: int, model: str = "mixed") -> list[str]:
    """Who answered each turn of a conversation."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "go"}]
    said = []
    for _ in range(count):
        status, body, _ = await gateway.chat({"model": model, "messages": messages}, f"/t/{trajectory}")
        assert status == 200, body
        text = body["choices"][0]["message"]["content"]
        said.append(text)
        messages += [{"role": "assistant", "content": text}, {"role": "user", "content": "go on"}]
    return said


MIXED = {"mix": [{"name": "mixed", "base": "policy", "shares": {"teacher": [[0, 0.5], [10, 0.0]]}}]}


async def test_turns_are_mixed_and_their_source_is_on_the_step() -> None:
    async with several(MIXED, policy={}, teacher={"channel": "teaching"}) as (gateway, _):
        gateway.pool.create_trajectory(NewTrajectory(trajectory_id="t1", channel="val"))
        said = await turns(gateway, "t1", 8)
        assert set(said) == {"policy", "teacher"}
        steps = gateway.steps("t1")
        assert [step.policy.model for step in steps if step.policy is not None] == said
        drawn = gateway.gateway.models.mixes["mixed"]
        assert said == [drawn.draw("t1", turn, 0).model for turn in range(8)]
        assert {step.metadata["mixed_from"] for step in steps} == {"mixed"}
        assert {step.metadata["mixed_probability"] for step in steps} == {0.5}
        # A mixed turn is one of its trajectory, whoever spoke, and continues the turn before.
        assert {step.channel for step in steps} == {"val"}
        assert {step.fork_reason for step in steps} == {None}
        exchanges = gateway.pool.list_exchanges("t1")
        assert {each.requested_model for each in exchanges} == {"mixed"}
        assert [each.model for each in exchanges] == said
        # The same trajectory again is drawn the same, by any gateway.
        assert await turns(gateway, "t1", 8) == said
        gateway.pool.set_policy(Policy("policy", "run", 10))
        gateway.gateway.state._read_at = 0.0
        assert set(await turns(gateway, "t2", 8)) == {"policy"}
        # Who names a model gets it.
        assert await turns(gateway, "t3", 2, "teacher") == ["teacher", "teacher"]
        assert {step.channel for step in gateway.steps("t3")} == {"teaching"}
        assert "mixed_from" not in gateway.steps("t3")[0].metadata


async def age(gateway: Harness) -> None:
    """Have the policy reach the version from which on it answers alone."""
    gateway.pool.set_policy(Policy("policy", "default", 10))
    gateway.gateway.state._read_at = 0.0


def taught(gateway: Harness) -> str:
    """A trajectory whose first turn the teacher answers at version 0."""
    mix = gateway.gateway.models.mixes["mixed"]
    return next(f"t{number}" for number in range(99) if mix.draw(f"t{number}", 0, 0).model == "teacher")


ASKED: dict[str, Any] = {"model": "mixed", "messages": [{"role": "user", "content": "go"}]}


@pytest.mark.parametrize("served", ["here", "elsewhere"])
@pytest.mark.parametrize("answered", [True, False])
async def test_a_retry_gets_the_model_of_its_first_try_whatever_became_of_it(served: str, answered: bool) -> None:
    async with several(MIXED, policy={}, teacher={}) as (gateway, engines):
        trajectory = taught(gateway)
        if not answered:
            engines["teacher"].script = ScriptedReply(status=500, error_body="no")
        status, _, _ = await gateway.chat(ASKED, f"/t/{trajectory}")
        assert (status == 200) == answered
        await age(gateway)
        engines["teacher"].script = "taught"
        if served == "elsewhere":
            gateway.gateway.admission._draws = Draws(gateway.pool)
        _, body, _ = await gateway.chat(ASKED, f"/t/{trajectory}", x_stainless_retry_count="1")
        assert body["choices"][0]["message"]["content"] == "taught"
        retry = gateway.steps(trajectory)[-1]
        assert (retry.metadata["mixed_from"], retry.metadata["mixed_probability"]) == ("mixed", 0.5)
        # What is no retry is drawn by the version of now.
        _, body, _ = await gateway.chat(ASKED, f"/t/{trajectory}")
        assert body["choices"][0]["message"]["content"] == "policy"


async def test_draws_that_are_remembered_are_bounded_and_those_of_models_that_left_do_not_count() -> None:
    pool = open_store("memory://")
    draws = Draws(pool, limit=2)
    old = Mix(MixSettings(name="mixed", base="policy", shares={"teacher": ((0, 1.0),)}))
    new = Mix(MixSettings(name="mixed", base="policy", shares={"other": ((0, 0.0),)}))
    for name in ("t1", "t2", "t3"):
        assert (await draws.draw(old, name, 0, 0, "body", retry=False)).model == "teacher"
    assert [trajectory for _, trajectory, _ in draws._drawn] == ["t2", "t3"]
    assert (await draws.draw(new, "t3", 0, 0, "body", retry=True)).model == "policy"
    pool.close()


async def test_a_mix_is_listed_like_a_model() -> None:
    async with several(MIXED, policy={}, teacher={}) as (gateway, _):
        async with gateway.http.get(gateway.url + "/v1/models") as response:
            assert [card["id"] for card in (await response.json())["data"]] == ["policy", "teacher", "mixed"]
        status, body, _ = await gateway.chat({"model": "nobody", "messages": [{"role": "user", "content": "x"}]})
        assert status == 404
        assert "policy, teacher, mixed" in body["error"]["message"]


async def test_turns_of_token_in_models_mix_too() -> None:
    """Each turn's prompt extends the one before bit for bit where the vocabulary is the same, whoever spoke."""
    exact = {"tokens": "token-in", "tokenizer": "byte"}
    async with several(MIXED, policy=exact, teacher=exact) as (gateway, engines):
        said = await turns(gateway, "t1", 8)
        assert set(said) == {"policy", "teacher"}
        steps = gateway.steps("t1")
        for before, after in itertools.pairwise(steps):
            whole = [*(before.prompt_ids or []), *(before.response_ids or [])]
            assert (after.prompt_ids or [])[: len(whole)] == whole
        assert {step.fork_reason for step in steps} == {None}
        assert sum(len(engine.requests) for engine in engines.values()) == 8


async def test_a_judge_beside_the_policy_has_its_own_channel() -> None:
    async with several({}, policy={}, judge={"channel": "judge"}) as (gateway, engines):
        for model in ("policy", "judge", "policy"):
            body = {"model": model, "messages": [{"role": "user", "content": model}]}
            assert (await gateway.chat(body, "/t/t1"))[0] == 200
        said = [(step.channel, step.policy.model) for step in gateway.steps("t1") if step.policy is not None]
        assert said == [("train", "policy"), ("judge", "judge"), ("train", "policy")]
        assert [len(engine.requests) for engine in engines.values()] == [2, 1]


CHANNELS = {
    "channels": {
        "val": {"sampling": {"temperature": 0.0, "max_tokens": 5, "seed": 3}},
        "judge": {"sampling": {"top_p": 0.5}},
    }
}


@pytest.mark.parametrize("tokens", ["engine", "token-in"])
async def test_what_a_channel_fixes_holds_and_is_on_record(tokens: str) -> None:
    models = {name: {"tokens": tokens, "tokenizer": "byte"} for name in ("policy", "judge")}
    models["judge"]["channel"] = "judge"
    async with several(CHANNELS, **models) as (gateway, engines):
        asked = {"messages": [{"role": "user", "content": "x"}], "temperature": 0.9, "top_p": 0.8, "max_tokens": 100}
        for path, model, header in (("t1", "policy", "val"), ("t2", "policy", "train"), ("t3", "judge", "val")):
            answer = await gateway.chat({"model": model, **asked}, f"/t/{path}", X_AgentWorld_Channel=header)
            assert answer[0] == 200
        found = {}
        for path, engine, number in (("t1", "policy", 0), ("t2", "policy", 1), ("t3", "judge", 0)):
            (step,) = gateway.steps(path)
            body = engines[engine].requests[number].body
            sent = (body["temperature"], body["top_p"], body["max_tokens"], body.get("seed"))
            sampling = step.sampling
            assert sampling is not None
            assert (sampling.temperature, sampling.top_p, sampling.max_tokens, sampling.seed) == sent
            found[path] = sent
        assert found == {"t1": (0.0, 0.8, 5, 3), "t2": (0.9, 0.8, 100, None), "t3": (0.9, 0.5, 100, None)}


def test_a_fixed_parameter_has_a_range() -> None:
    for wrong in ({"temperature": -1}, {"top_p": 0}, {"max_tokens": 0}, {"n": 2}):
        with pytest.raises(ConfigError):
            settings({"channels": {"val": {"sampling": wrong}}})
    assert msgspec.structs.asdict(settings({}))["channels"] == {}
