"""What a writer believes to be stored: dropped where it was undone, or deleted by whatever process."""

import sqlite3

import pytest

from agentworld.errors import ConflictError
from agentworld.pool.sql.append_intake import prepare_all
from agentworld.pool.sqlite import SqlitePool
from agentworld.records import Message

from .samples import step

SAID = [Message(role="user", content=f"question {number} " * 20) for number in range(6)]
IDS = list(range(70_000, 71_000))
TOOLS = [{"type": "function", "function": {"name": "f", "description": "long " * 50}}]


def turn(number, trajectory="t", **changes):
    """A turn of a conversation whose ids and messages go on."""
    return step(
        trajectory,
        prompt_ids=IDS[: 100 * number],
        response_ids=IDS[100 * number : 100 * number + 90],
        response_logprobs=None,
        prompt_messages=SAID[:number],
        response_message=None,
        tools=TOOLS,
        **changes,
    )


def reads_back(pool, sent):
    there = pool.get_step(sent.step_id)
    return (there.prompt_ids, there.response_ids, there.prompt_messages, there.tools) == (
        sent.prompt_ids,
        sent.response_ids,
        sent.prompt_messages,
        sent.tools,
    )


def test_a_missing_parent_replans(tmp_path):
    first, second = (SqlitePool(tmp_path / "pool.db") for _ in range(2))
    first.append_steps([turn(4)])
    second.delete_trajectories(["t"], "for the test")
    second.collect()
    with sqlite3.connect(first.path) as connection:
        for table in ("token_blocks", "message_nodes", "tool_sets"):
            assert connection.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)
    again = [turn(5, "u"), turn(6, "u")]
    assert [result.outcome for result in first.append_steps(again)] == ["stored", "stored"]
    assert all(reads_back(second, sent) for sent in again)
    assert first.check() == []
    first.close()
    second.close()


def test_content_that_goes_under_a_running_conversation_is_stored_again(sqlite_pool):
    # As a collector of another process would: it may delete what no step holds any more.
    sqlite_pool.append_steps([turn(4, step_id="a")])
    with sqlite3.connect(sqlite_pool.path) as connection:
        connection.execute("UPDATE steps SET block = NULL, tail = x'', id_count = 0, prompt_node = NULL, tools = NULL")
        for table in ("token_blocks", "message_nodes", "tool_sets"):
            connection.execute(f"DELETE FROM {table}")
        connection.execute("INSERT INTO counters VALUES ('gc.generation', 1)")
    sent = turn(5, step_id="b")
    assert sqlite_pool.append_steps([sent])[0].outcome == "stored"
    assert reads_back(sqlite_pool, sent)


@pytest.mark.parametrize("together", [False, True])
def test_what_a_rollback_undid_is_stored_again(sqlite_pool, together):
    sqlite_pool.append_steps([turn(2)])

    def undone(txn):
        payloads = [prepare_all([turn(4)]), prepare_all([turn(3, "u")])]
        if together:
            sqlite_pool._appender.append_all(txn, payloads)
        else:
            for payload in payloads:
                sqlite_pool._appender.append_all(txn, [payload])
        raise ConflictError("undo")

    with pytest.raises(ConflictError):
        sqlite_pool._writer.submit(undone).result()
    # Rows get the numbers that the undone ones had, and other content.
    sent = [turn(3, "v"), turn(5), turn(4, "u"), turn(6), turn(5, "u")]
    for one in sent:
        assert sqlite_pool.append_steps([one])[0].outcome == "stored"
    assert all(reads_back(sqlite_pool, one) for one in sent)
    assert sqlite_pool.check() == []


def test_two_processes_take_turns_in_one_conversation(tmp_path):
    pools = [SqlitePool(tmp_path / "pool.db") for _ in range(2)]
    sent = [turn(number) for number in range(1, 7)]
    for number, one in enumerate(sent):
        pools[number % 2].append_steps([one])
    assert all(reads_back(pool, one) for one in sent for pool in pools)
    with sqlite3.connect(pools[0].path) as connection:
        assert connection.execute("SELECT count(*) FROM message_nodes").fetchone() == (6,)
        assert connection.execute("SELECT count(*) FROM token_blocks").fetchone() == (690 // 128,)
    assert pools[0].check() == []
    for pool in pools:
        pool.close()


def test_conversations_beyond_the_open_frames_read_back(sqlite_pool):
    sqlite_pool._appender._forests._bodies._limit = 2
    sent = [turn(number, f"t{rollout}") for number in range(1, 5) for rollout in range(5)]
    own = [
        step("x", prompt_messages=[Message(role="user", content=f"{rollout} " * 50), *SAID[:number]])
        for number in range(4)
        for rollout in range(5)
    ]
    sqlite_pool.append_steps(sent)
    for one in own:
        sqlite_pool.append_steps([one])
    assert all(reads_back(sqlite_pool, one) for one in sent)
    assert all(sqlite_pool.get_step(one.step_id).prompt_messages == one.prompt_messages for one in own)
    assert sqlite_pool.check() == []


def test_no_state_of_an_undone_conversation_is_taken_for_another(sqlite_pool):
    def undone(txn):
        sqlite_pool._appender.append_all(txn, [prepare_all([turn(2)])])
        raise ConflictError("undo")

    with pytest.raises(ConflictError):
        sqlite_pool._writer.submit(undone).result()
    # Two nodes too short to compress get the rows of the undone ones; what follows has them as parents.
    short = [Message(role="user", content=""), Message(role="user", content="b")]
    sent = step("u", prompt_messages=[*short, SAID[0]], response_message=None)
    assert sqlite_pool.append_steps([sent])[0].outcome == "stored"
    assert sqlite_pool.get_step(sent.step_id).prompt_messages == sent.prompt_messages


def test_what_a_trajectory_counts_is_read_again_where_another_process_wrote(tmp_path):
    first, second = (SqlitePool(tmp_path / "pool.db") for _ in range(2))
    assert [first.append_steps([turn(number)])[0].step_index for number in (1, 2)] == [0, 1]
    assert second.append_steps([turn(3)])[0].step_index == 2
    assert first.append_steps([turn(4)])[0].step_index == 3
    second.complete_trajectory("t", "finished")
    assert first.append_steps([turn(5)])[0].outcome == "late"
    assert first.get_trajectory("t").step_count == 5
    assert first.check() == []
    first.close()
    second.close()


def test_what_a_trajectory_counts_is_read_again_where_its_own_process_changed_it(sqlite_pool):
    sqlite_pool.append_steps([turn(1, step_id="a"), turn(2)])
    sqlite_pool.append_steps([turn(3, supersedes="a")])
    sqlite_pool.append_steps([turn(4)])
    with sqlite3.connect(sqlite_pool.path) as connection:
        assert connection.execute("SELECT step_count, usable_steps FROM trajectories").fetchone() == (4, 3)
    assert sqlite_pool.check() == []


def test_what_an_undone_write_counted_is_forgotten(sqlite_pool):
    sqlite_pool.append_steps([turn(1)])

    def undone(txn):
        sqlite_pool._appender.append_all(txn, [prepare_all([turn(2), turn(3), turn(1, "u")])])
        raise ConflictError("undo")

    with pytest.raises(ConflictError):
        sqlite_pool._writer.submit(undone).result()
    sent = [turn(2), turn(1, "u")]
    assert [result.step_index for result in sqlite_pool.append_steps(sent)] == [1, 0]
    assert sqlite_pool.check() == []
