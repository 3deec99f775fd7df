"""Shared context is stored once, and a step's work is linear in what is new."""

import sqlite3

import numpy as np
import pytest

from agentworld.forest import hash_blocks
from agentworld.pool.sql import forests
from agentworld.pool.sql.packing import pack_ids, pack_mask, unpack_ids, unpack_mask
from agentworld.pool.sql.tips import MessageTip, TipCache
from agentworld.pool.sqlite import SqlitePool
from agentworld.records import Message, Step

from .samples import step


def rows(pool, table):
    with sqlite3.connect(pool.path) as connection:
        return connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]


def test_16_ids_only_rollouts_that_share_3000_ids_store_them_once(sqlite_pool):
    random = np.random.default_rng(1)
    prompt = random.integers(0, 150_000, 3000).tolist()
    replies = [random.integers(0, 150_000, 100).tolist() for _ in range(16)]
    sqlite_pool.append_steps(
        [
            Step(step_id=f"s{number}", trajectory_id=f"t{number}", prompt_ids=prompt, response_ids=reply)
            for number, reply in enumerate(replies)
        ]
    )
    shared_blocks = 3000 // 128
    # Each rollout's own: one block that holds the prompt's last 56 ids and 72 of its reply, and a tail.
    assert rows(sqlite_pool, "token_blocks") == shared_blocks + 16
    stats = sqlite_pool.stats()
    assert stats.tokens_flat == 16 * 3100
    assert stats.tokens_stored == (shared_blocks + 16) * 128 + 16 * (3100 % 128)
    for number, reply in enumerate(replies):
        there = sqlite_pool.get_step(f"s{number}", include=("tokens",))
        assert (there.prompt_ids, there.response_ids) == (prompt, reply)


def test_equal_ids_of_two_vocabularies_are_apart(sqlite_pool):
    sqlite_pool.append_steps([step(vocabulary=name, prompt_ids=list(range(128)), response_ids=[1, 2]) for name in "vw"])
    assert rows(sqlite_pool, "token_blocks") == 2


def test_a_conversation_adds_only_its_new_messages(sqlite_pool):
    said = [Message(role="system", content="rules")]
    for turn in range(10):
        said.append(Message(role="user", content=str(turn)))
        reply = Message(role="assistant", content=f"r{turn}")
        sqlite_pool.append_steps([step(prompt_messages=list(said), response_message=reply)])
        said.append(reply)
    assert rows(sqlite_pool, "message_nodes") == 21
    assert (
        sqlite_pool.get_step(sqlite_pool.list_steps(order="newest", limit=1).items[0].step_id).prompt_messages
        == (said[:-1])
    )


@pytest.fixture
def hashed(monkeypatch):
    """How many blocks were hashed for each step."""
    counts = []

    def counting(parent, data):
        digests = hash_blocks(parent, data)
        counts.append(len(digests))
        return digests

    monkeypatch.setattr(forests, "hash_blocks", counting)
    return counts


def test_a_continued_sequence_is_compared_not_hashed_again(sqlite_pool, hashed):
    ids = list(range(5000))
    for turn in range(5):
        sqlite_pool.append_steps([step("t", prompt_ids=ids, response_ids=[turn] * 128)])
        ids = [*ids, *[turn] * 128]
    assert hashed[0] == 5128 // 128
    assert all(count <= 2 for count in hashed[1:])


def test_steps_of_one_batch_build_on_each_other(sqlite_pool, hashed):
    ids, batch = list(range(1280)), []
    for turn in range(4):
        batch.append(step("t", prompt_ids=list(ids), response_ids=[turn] * 128))
        ids += [turn] * 128
    assert [result.outcome for result in sqlite_pool.append_steps(batch)] == ["stored"] * 4
    assert hashed == [11, 1, 1, 1]
    assert rows(sqlite_pool, "token_blocks") == 14
    for sent in batch:
        assert sqlite_pool.get_step(sent.step_id).prompt_ids == sent.prompt_ids


def test_interleaved_branches_keep_their_own_tips(sqlite_pool, hashed):
    branches = [[base] * 1280 for base in range(3)]
    for turn in range(4):
        for branch in branches:
            sqlite_pool.append_steps([step("t", prompt_ids=list(branch), response_ids=[9 + turn] * 128)])
            branch.extend([9 + turn] * 128)
    assert hashed[:3] == [11, 11, 11]
    assert set(hashed[3:]) == {1}


def test_the_cache_stays_within_its_bytes():
    cache = TipCache(1000)
    for number in range(50):
        tip = MessageTip(b"")
        tip.weight = 300
        tip.weigh()
        cache.put(f"t{number}", tip)
    assert [name for name in map("t{}".format, range(50)) if cache.get(name)] == ["t47", "t48", "t49"]
    cache.drop("t48")
    assert cache.get("t48") == ()
    [tip] = cache.get("t47")
    tip.weight = 900
    cache.grew("t47", tip, tip.weigh())
    assert [name for name in map("t{}".format, range(50)) if cache.get(name)] == ["t47"]


@pytest.mark.parametrize("ids", [[], [0], [65_535], [65_536, 1], [2**24 - 1], [2**24, 0], [2**32 - 1]])
def test_packed_ids_read_back_in_the_bytes_they_need(ids):
    array = np.asarray(ids, dtype="<u4")
    packed = pack_ids(array)
    assert unpack_ids(packed, len(ids)).tolist() == ids
    if ids:
        assert len(packed) == len(ids) * (2 if max(ids) < 2**16 else 3 if max(ids) < 2**24 else 4)


@pytest.mark.parametrize("mask", [[], [0], [1, 0, 1], [0] * 8, [1] * 17])
def test_packed_masks_read_back(mask):
    assert unpack_mask(pack_mask(np.asarray(mask, dtype=np.uint8))).tolist() == mask


def test_what_another_process_stored_is_found_again(tmp_path):
    first, second = (SqlitePool(tmp_path / "pool.db") for _ in range(2))
    ids = list(range(1000))
    first.append_steps([step("t", prompt_ids=ids, response_ids=[1, 2])])
    second.append_steps([step("t", prompt_ids=ids, response_ids=[3, 4])])
    first.append_steps([step("t", prompt_ids=ids, response_ids=[5, 6])])
    assert rows(first, "token_blocks") == 1000 // 128
    assert [one.step_index for one in second.list_steps(trajectory_id="t").items] == [0, 1, 2]
    first.close()
    second.close()
