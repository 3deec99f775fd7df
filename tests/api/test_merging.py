"""What merging saves over HTTP: the words of a pool, bounds, and what keys that are bound see."""

import pytest

from agentworld.api import merging
from agentworld.client.aio import AsyncFactory
from agentworld.errors import BusyError, InvalidRequestError, NotFoundError
from agentworld.factory import connect, open_pool
from agentworld.merge.results import MergeSource
from agentworld.pool.keys import NewKey
from agentworld.records import BatchSpec, NewTrajectory, Step
from tests.api.serving import Serving
from tests.api.test_errors import is_an_error
from tests.merge.pools import filled


@pytest.fixture(scope="module")
def server():
    with Serving() as running:
        filled(running.pool)
        yield running


def test_clients_have_the_words_of_a_pool(server):
    group, told = MergeSource(group="g"), []
    with open_pool("memory://") as own, connect(server.url) as client:
        filled(own)
        for source in (group, MergeSource(), MergeSource(where="step_index == 1", channel="train")):
            said = client.merge_stats(source, budget=130, model="qwen3-0.6b", progress=lambda *one: told.append(one))
            assert said == own.merge_stats(source, budget=130, model="qwen3-0.6b")
            assert client.merge_tree(source, ids=3) == own.merge_tree(source, ids=3)
        assert told[-1][0] == "merge"
        few = client.merge_tree(group, max_nodes=2, depth=2)
        assert (len(few.nodes), few.nodes_in_all) == (2, 10)
        assert client.merge_stats(group, max_tokens=200).stopped == "tokens"


async def test_event_loops_have_them_too(server):
    async with AsyncFactory(server.url) as client:
        said = await client.merge_stats(MergeSource(group="g"), model="2/16/100")
        tree = await client.merge_tree(MergeSource(trajectory="g-1"))
    assert said.cost.shape.hidden == 16
    assert tree.sequences == 2


@pytest.mark.parametrize(
    ("asked", "status", "path"),
    [
        ("stats?group=none", 404, "group_id"),
        ("stats?group=g&trajectory=g-1", 400, "trajectory"),
        ("stats?model=large", 400, "model"),
        ("stats?budget=0", 400, "?budget"),
        ("stats?max_tokens=999999999", 400, "?max_tokens"),
        ("stats?where=rewrd>1", 400, None),
        ("tree?max_nodes=0", 400, "?max_nodes"),
        ("tree?ids=100000", 400, "?ids"),
        ("tree?nodes=3", 400, "?nodes"),
    ],
)
def test_what_cannot_be_asked_is_named(server, asked, status, path):
    code, error = server.get(f"/api/v1/merge/{asked}")
    assert code == status
    is_an_error(error)
    assert path is None or error["error"]["path"] == path


def test_few_are_built_at_once(server, monkeypatch):
    monkeypatch.setattr(merging, "_room", merging.threading.BoundedSemaphore(1))
    with merging._place(), connect(server.url) as client, pytest.raises(BusyError, match="being built here already"):
        client.merge_stats()


def test_keys_read_what_is_theirs_alone():
    with Serving(require_keys=True) as server:
        pool = filled(server.pool)
        pool.create_trajectory(NewTrajectory(trajectory_id="v", channel="val"))
        pool.append_steps([Step(step_id="v-0", trajectory_id="v", channel="val", prompt_ids=[1], response_ids=[2])])
        secrets = {
            "reads": NewKey(name="reads", scopes=("read",)),
            "val": NewKey(name="val", scopes=("read",), channel="val"),
            "one": NewKey(name="one", scopes=("read",), trajectory_id="g-1"),
            "writes": NewKey(name="writes", scopes=("write",)),
        }
        clients = {name: connect(server.url, api_key=pool.create_key(new).secret) for name, new in secrets.items()}
        try:
            assert clients["reads"].merge_stats().whole.sequences == 10
            assert clients["val"].merge_stats().worst[0].unit == "v"
            assert clients["val"].merge_tree().nodes[0].ends == ["v-0"]
            pool.complete_trajectory("v", "finished", 1.0)
            for channel in ("val", "train"):
                assert pool.lease(BatchSpec(method="sft", size=1, channel=channel), "c") is not None
            assert clients["val"].merge_stats(MergeSource(consumer="c")).worst[0].unit == "v"
            assert clients["reads"].merge_stats(MergeSource(consumer="c")).worst[0].unit != "v"
            assert clients["one"].merge_stats().whole.sequences == 2
            for name, source in (("val", MergeSource(group="g")), ("one", MergeSource(group="g"))):
                with pytest.raises(NotFoundError):
                    clients[name].merge_stats(source)
            with pytest.raises(NotFoundError):
                clients["val"].merge_tree(MergeSource(trajectory="g-1"))
            with pytest.raises(Exception, match="scope"):
                clients["writes"].merge_stats()
            with pytest.raises(InvalidRequestError):
                clients["reads"].merge_stats(MergeSource(split="train"))
        finally:
            for client in clients.values():
                client.close()
