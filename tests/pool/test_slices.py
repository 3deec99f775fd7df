"""Steps in slices that processes read side by side, as Arrow tables."""

import itertools
import json
import random

import numpy as np
import pytest

import agentworld as aw
from agentworld.errors import ConfigError
from agentworld.factory import EmbeddedPool
from agentworld.pool.arrow_tables import COLUMNS
from agentworld.pool.memory import MemoryPool
from agentworld.pool.sql import store_slices
from agentworld.pool.sql.store_slices import Slice
from agentworld.records import Message, NewTrajectory, Policy, Step
from tests.pool import samples

ALL = ("tokens", "logprobs", "messages")


@pytest.fixture(params=["sqlite", "postgres"])
def pool(request):
    return request.getfixturevalue(f"{request.param}_pool")


def step(step_id, trajectory_id, **changes):
    return samples.step(trajectory_id, step_id=step_id, **changes)


def rows(tables):
    return [row for table in tables for row in table.to_pylist()]


def read(pool, count=1, *, where=None, channel=None, include=()):
    """The rows of every slice, and the last key that was planned for."""
    last = pool.last_key()
    ends = [last * number // count for number in range(count + 1)]
    parts = [Slice(above, until, where, channel, include, pool.now()) for above, until in itertools.pairwise(ends)]
    return [rows(pool.tables(part)) for part in parts]


def test_slices_hold_each_step_once_however_many_there_are(pool):
    chance = random.Random(5)
    sent = [step(f"s{number}", f"t{number % 7}") for number in range(60)]
    pool.append_steps(sent)
    pool.delete_trajectories(["t3"])
    there = [each.step_id for each in sent if each.trajectory_id != "t3"]
    for count in (1, 2, 7, chance.randrange(8, 60), 60):
        parts = read(pool, count)
        assert [row["step_id"] for part in parts for row in part] == there
        assert len(parts) == count


@pytest.mark.parametrize("where", ["step_index >= 1", "trajectory_id == 't2'", "channel == 'val'", "agent is null"])
def test_a_search_ends_where_its_slice_does(pool, where):
    """Whichever way the search takes: row by row, or by an index that finds few rows or many."""
    sent = [step(f"s{number}", f"t{number % 5}", channel="val" if number % 5 == 2 else "train") for number in range(50)]
    pool.append_steps(sent)
    whole = [row["step_id"] for row in read(pool, where=where)[0]]
    parts = read(pool, 4, where=where)
    assert [row["step_id"] for part in parts for row in part] == whole
    places = {each.step_id: number for number, each in enumerate(sent)}
    for number, part in enumerate(parts):
        assert all(50 * number // 4 <= places[row["step_id"]] < 50 * (number + 1) // 4 for row in part)
    listed = pool.list_steps(where=where, limit=100).items
    assert whole == [each.step_id for each in listed]


def test_what_comes_after_the_plan_is_not_in_it(pool):
    pool.append_steps([step("s1", "t"), step("s2", "t")])
    planned = Slice(0, pool.last_key(), None, None, (), pool.now())
    pool.append_steps([step("s3", "t")])
    assert [row["step_id"] for row in rows(pool.tables(planned))] == ["s1", "s2"]


def test_a_table_says_what_the_step_says(pool):
    message, surrogate = Message(role="user", content="?"), "a\x00b\ud800"
    pool.create_trajectory(NewTrajectory(trajectory_id="t", group_id="g", channel="c"))
    sent = step(
        "s", "t", prompt_ids=[1, 2, 151_642], response_ids=[7, 8], response_logprobs=[-0.5, None], response_mask=[1, 0],
        prompt_messages=[message], response_message=Message(role="assistant", content="!"), policy=Policy("m", "r", 3),
        metadata={"text": surrogate}, tools=[],
    )  # fmt: skip
    bare = Step(step_id="bare", trajectory_id="t", token_source="none")
    pool.append_steps([sent, bare])
    pool.complete_trajectory("t", "finished", 0.75)
    [[row, without]] = read(pool, include=ALL)
    stored = pool.get_step("s")
    for name in (*COLUMNS.keys() - {"policy_model", "policy_run", "policy_version", "rewards", "labels", "metadata"},):
        assert row[name] == getattr(stored, name), name
    assert (row["policy_model"], row["policy_run"], row["policy_version"]) == ("m", "r", 3)
    assert (row["status"], row["trajectory_reward"], row["group_id"]) == ("finished", 0.75, "g")
    assert (row["prompt_ids"], row["response_ids"], row["response_mask"]) == ([1, 2, 151_642], [7, 8], [1, 0])
    assert row["response_logprobs"][0] == -0.5
    assert np.isnan(row["response_logprobs"][1])
    assert json.loads(row["metadata"])["text"] == surrogate
    assert json.loads(row["prompt_messages"]) == [{"role": "user", "content": "?"}]
    assert json.loads(row["response_message"])["content"] == "!"
    for name in ("prompt_ids", "response_ids", "response_mask", "response_logprobs", "prompt_messages", "policy_model"):
        assert without[name] is None, name


def test_tables_stay_small(pool, monkeypatch):
    monkeypatch.setattr(store_slices, "IDS_AT_ONCE", 100)
    pool.append_steps([step(f"s{number}", "t", prompt_ids=list(range(30))) for number in range(9)])
    pool.append_steps([step("long", "u", prompt_ids=list(range(500)))])
    found = list(pool.tables(Slice(0, pool.last_key(), None, None, ("tokens",), pool.now())))
    assert sum(table.num_rows for table in found) == 10
    for table in found:
        ids = sum(len(row["prompt_ids"]) + len(row["response_ids"]) for row in table.to_pylist())
        assert ids <= 100 or table.num_rows == 1


def test_a_slice_without_steps_is_one_empty_table_of_the_same_columns(pool):
    [empty] = pool.tables(Slice(0, pool.last_key(), None, None, ALL, pool.now()))
    pool.append_steps([step("s", "t")])
    [full] = pool.tables(Slice(0, pool.last_key(), None, None, ALL, pool.now()))
    assert empty.num_rows == 0
    assert empty.schema == full.schema


def test_a_pool_in_memory_is_not_read_by_others():
    with EmbeddedPool(MemoryPool()) as pool, pytest.raises(ConfigError, match="memory://"):
        pool.to_ray()


def test_without_ray_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr("agentworld.factory.importlib.util.find_spec", lambda name: None)
    with aw.open_pool(f"sqlite:///{tmp_path}/pool.db") as pool, pytest.raises(ConfigError, match=r"agentworld\[ray\]"):
        pool.to_ray()
