"""Weights change between two tokens; what cannot be used changes nothing."""

import asyncio
import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from agentworld.engines.builtin.models import open_model
from agentworld.engines.builtin.runner import Runner, Sequence
from agentworld.engines.builtin.sampler import RowSampler
from agentworld.engines.surface import Sampling
from tests.engines.builtin.models import make_model, rescore, save_model
from tests.engines.sse import events, until

GREEDY = {"prompt": [3] * 40, "max_tokens": 12, "temperature": 0, "logprobs": 0, "return_token_ids": True}


@pytest.fixture(scope="module")
def other_directory(tmp_path_factory):
    return save_model(tmp_path_factory.mktemp("other"), seed=2)


async def reload(client, path, version=1, **more):
    body = {"path": str(path), "version": version, **more}
    status, raw = await client.raw(body, "/reload")
    return status, json.loads(raw)


async def test_new_weights_serve_from_the_next_token_on(client, model_directory, other_directory):
    before = await client(GREEDY)
    status, answer = await reload(client, other_directory, 7, run="run-a")
    after = await client(GREEDY)
    assert (status, answer["policy"]["version"], answer["policy"]["run"]) == (200, 7, "run-a")
    assert (before["policy_version"], after["policy_version"], after["policy_run"]) == (0, 7, "run-a")
    # Nothing computed with the old weights is reused.
    assert after["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    for reply, directory in ((before, model_directory), (after, other_directory)):
        choice = reply["choices"][0]
        scored = rescore(directory, GREEDY["prompt"], choice["token_ids"])
        assert choice["logprobs"]["token_logprobs"] == pytest.approx(scored, abs=1e-4)
        assert "version_spans" not in choice
    async with client.session.get(client.url + "/version") as reply:
        assert (await reply.json())["policy"] == answer["policy"]


async def test_a_single_file_and_weights_left_tied_are_taken(client, other_directory, tmp_path):
    file = tmp_path / "w.safetensors"
    save_file(load_file(other_directory / "model.safetensors"), file)
    assert "lm_head.weight" not in load_file(file)
    assert (await reload(client, file))[0] == 200


def broken(tmp_path, kind):
    tensors = {name: tensor.clone() for name, tensor in make_model(5).state_dict().items()}
    tensors.pop("lm_head.weight")
    if kind == "shape":
        tensors = {name: tensor.clone() for name, tensor in make_model(5, hidden=48).state_dict().items()}
        tensors.pop("lm_head.weight")
    elif kind == "missing":
        tensors.pop("model.norm.weight")
    elif kind == "unknown":
        tensors["model.more"] = torch.zeros(1)
    elif kind == "nan":
        tensors["model.norm.weight"][0] = float("nan")
    save_file(tensors, tmp_path / "model.safetensors")
    if kind == "cut":
        data = (tmp_path / "model.safetensors").read_bytes()
        (tmp_path / "model.safetensors").write_bytes(data[: len(data) // 2])
    if kind == "nothing":
        (tmp_path / "model.safetensors").unlink()
    return tmp_path


@pytest.mark.parametrize("kind", ["shape", "missing", "unknown", "nan", "cut", "nothing"])
async def test_weights_that_do_not_fit_leave_the_old_ones_serving(client, tmp_path, kind):
    before = (await client(GREEDY))["choices"][0]["token_ids"]
    status, answer = await reload(client, broken(tmp_path, kind), 9)
    after = await client(GREEDY)
    assert (status, answer["error"]["param"]) == (400, "path")
    assert after["choices"][0]["token_ids"] == before
    assert after["policy_version"] == 0


async def test_a_reply_under_way_goes_on_and_tells_where_the_weights_changed(client, other_directory):
    runner = client.engine._runner
    step, taken = runner._step, []

    def gated(*arguments):
        # The tenth token is drawn once the reload is in, whatever the speed of either.
        sequence = runner._rows[0]
        if len(sequence.reply) < 10 or runner.version == 4:
            step(*arguments)
            taken.append(len(sequence.reply))

    runner._step = gated
    body = {"prompt": "x", "max_tokens": 20, "ignore_eos": True, "return_token_ids": True}
    call = asyncio.ensure_future(client(body))
    await until(lambda: 10 in taken)
    assert (await reload(client, other_directory, 4))[0] == 200
    reply = await call
    assert reply["policy_version"] == 0
    assert reply["version_spans"] == reply["choices"][0]["version_spans"] == [[0, 0], [10, 4]]
    assert len(reply["choices"][0]["token_ids"]) == 20


def held(runner, reached, version):
    """Have the runner do nothing from the time on when `reached` says so, until the version is there."""
    step = runner._step

    def gated(*arguments):
        if runner.version == version or not reached():
            step(*arguments)

    runner._step = gated


SEVERAL = {"prompt": "x", "n": 2, "max_tokens": 20, "ignore_eos": True, "return_token_ids": True}


@pytest.mark.parametrize("stream", [False, True])
async def test_each_of_several_replies_tells_by_which_weights_it_was_sampled(start, other_directory, stream):
    """One row computes one after another, so the second begins after the change inside the first."""
    client = await start(max_batch=1)
    runner = client.engine._runner
    held(runner, lambda: len(runner._rows[0].reply) >= 10, 4)
    call = asyncio.ensure_future(client.raw({**SEVERAL, "stream": stream}))
    await until(lambda: runner._rows and len(runner._rows[0].reply) >= 10)
    assert (await reload(client, other_directory, 4))[0] == 200
    _, raw = await call
    if not stream:
        reply = json.loads(raw)
        assert [choice["version_spans"] for choice in reply["choices"]] == [[[0, 0], [10, 4]], [[0, 4]]]
        assert "policy_version" not in reply
        return
    told = {0: [], 1: []}
    for chunk in events(raw)[0]:
        for choice in chunk["choices"]:
            told[choice["index"]].append((chunk.get("policy_version"), choice.get("version_spans")))
    assert (told[0][-1][1], told[1][-1][1]) == ([[0, 0], [10, 4]], [[0, 4]])
    assert {version for version, _ in told[1]} == {4}
    # As soon as it is so, not at the end only.
    assert [spans for _, spans in told[0]].index([[0, 0], [10, 4]]) < len(told[0]) - 1


async def test_weights_of_another_run_end_what_is_under_way(start, other_directory):
    client = await start(max_batch=1)
    runner = client.engine._runner
    held(runner, lambda: len(runner._rows[0].reply) >= 10, 1)
    call = asyncio.ensure_future(client(SEVERAL))
    await until(lambda: runner._rows and len(runner._rows[0].reply) >= 10)
    assert (await reload(client, other_directory, 1, run="other"))[0] == 200
    reply = await call
    assert [choice["finish_reason"] for choice in reply["choices"]] == ["abort", "abort"]
    assert [len(choice["token_ids"]) for choice in reply["choices"]] == [10, 0]
    assert (reply["policy_version"], reply["policy_run"]) == (0, None)
    after = await client(SEVERAL)
    assert (after["policy_version"], after["policy_run"]) == (1, "other")
    assert {choice["finish_reason"] for choice in after["choices"]} == {"length"}


def test_what_a_running_reply_computed_with_old_weights_is_not_given_to_another(model_directory):
    """Driven by hand, without its thread: a sequence started before the change, one after."""
    out = []
    runner = Runner(open_model(str(model_directory)).model, max_batch=4, version=0, deliver=out.extend)

    def sequence(name):
        return Sequence(
            owner=name, index=0, prompt=[3] * 40, limit=6, stream=False, text=None, stops=None,
            sampler=RowSampler(Sampling(), seed=len(name), stop_ids=(), tops=0, raw=True),
            ends=frozenset(), reported_ends=frozenset(),
        )  # fmt: skip

    with torch.inference_mode():
        old, sibling, late = sequence("old"), sequence("sibling"), sequence("late")
        runner._waiting = [old]
        runner._turn()
        runner._waiting = [sibling]
        runner._turn()
        assert sibling.reused == 39
        runner.weights_changed(1)
        runner._waiting = [late]
        while runner._rows or runner._waiting:
            runner._turn()
    assert late.reused == 0
    assert old.spans == [[0, 0], [3, 1]]  # a prompt's turn draws two
    assert late.spans == [[0, 1]]
    assert {owner for owner, _ in out} == {"old", "sibling", "late"}
    assert [ids.tolist() for ids, _ in runner._prefixes._entries.values()] == [late.tokens[: late.cached]]
