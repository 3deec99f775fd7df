"""What operations ask of the engine while others wait for its lock: as many statements for many signals as for few."""

import numpy as np
import pytest

from agentworld.pool import signal_rules
from agentworld.pool.postgres import PostgresPool
from agentworld.pool.sql import standing
from agentworld.pool.sql.trajectories import Completion, Creation, complete_all, create_all
from agentworld.pool.sql.transaction import Transaction
from agentworld.records import Annotation, Feedback, NewTrajectory, Reward

from .samples import step


@pytest.fixture(params=["sqlite_pool", "postgres_pool"])
def pool(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
def statements(monkeypatch):
    """The statements of write transactions, in order; what is written for many rows at once is one."""
    sent = []
    execute, many = Transaction.execute, Transaction.many

    def counted(self, statement, parameters=None):
        sent.append(statement)
        return execute(self, statement, parameters)

    def counted_once(self, statement, rows):
        if rows:
            sent.append(statement)
        many(self, statement, rows)

    monkeypatch.setattr(Transaction, "execute", counted)
    monkeypatch.setattr(Transaction, "one", lambda self, *asked: next(iter(counted(self, *asked)), None))
    monkeypatch.setattr(Transaction, "many", counted_once)
    return sent


def steps_of(pool, count):
    pool.append_steps([step(f"t{number % 7}", step_id=f"s{number}") for number in range(count)])


KINDS = {
    "rewards": lambda name: Reward(value=1.5, step_id=name),
    "labels": lambda name: Feedback(kind="label", name="l", value=name, step_id=name),
    "comparisons": lambda name: Feedback(kind="comparison", step_id=name, other_id="other"),
    "annotations": lambda name: Annotation(name="a", values=[1.0, 2.0], step_id=name),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("are_there", [True, False], ids=["there", "awaited"])
def test_signals_take_as_many_statements_whatever_their_number(pool, statements, kind, are_there):
    if are_there:
        steps_of(pool, 60)
    taken = []
    for names in (range(20), range(20, 60)):
        statements.clear()
        assert pool.add_signals([KINDS[kind](f"s{number}") for number in names]) is not None
        taken.append(len(statements))
    # What waits already is looked up from the second call on.
    assert taken[0] <= taken[1] <= taken[0] + (not are_there)
    assert max(taken) < 15
    if not are_there:
        for names in (range(20), range(20, 60)):
            statements.clear()
            pool.append_steps([step("t", step_id=f"s{number}") for number in names])
            taken.append(len(statements))
        assert taken[3] <= taken[2]  # The first append implies its trajectory.
    assert pool.check() == []


def test_closing_groups_takes_as_many_statements_whatever_their_number(pool, statements, clock):
    taken = []
    for names in (range(3), range(3, 12)):  # as many as one transaction closes at least
        news = [
            NewTrajectory(
                trajectory_id=f"g{number}-{one}", group_id=f"g{number}", group_timeout=5, group_failures="zero"
            )
            for number in names
            for one in range(2)
        ]
        for new in news:
            pool.create_trajectory(new)
            pool.complete_trajectory(new.trajectory_id, "failed" if new.trajectory_id.endswith("0") else "finished")
        clock.now += 10
        statements.clear()
        assert pool.close_due_groups() == len(names)
        taken.append(len(statements))
        assert {pool.get_group(f"g{number}").served for number in names} == {2}
    assert taken[0] == taken[1] < 20
    assert pool.check() == []


@pytest.mark.parametrize(("seconds", "closed"), [(-1.0, [3, 3, 3]), (60.0, [9])])
def test_one_transaction_closes_groups_of_so_many_trajectories_at_once(
    pool, statements, clock, monkeypatch, seconds, closed
):
    """And goes on while it has time."""
    monkeypatch.setattr(standing, "CLOSED_MEMBERS", 6)
    monkeypatch.setattr(standing, "_CLOSING_SECONDS", seconds)
    for number in range(9):
        for one in range(2):
            pool.create_trajectory(
                NewTrajectory(trajectory_id=f"g{number}-{one}", group_id=f"g{number}", group_timeout=5)
            )
    clock.now += 10
    done = []
    close_due = standing.close_due
    monkeypatch.setattr(standing, "close_due", lambda *asked: done.append(close_due(*asked)) or done[-1])
    assert pool.close_due_groups() == 9
    assert done == closed


@pytest.mark.parametrize("group_size", [None, 2], ids=["alone", "groups"])
def test_trajectories_are_created_and_completed_together(pool, statements, group_size):
    taken = []
    for names in (range(5), range(5, 20)):
        asked = [
            Creation(
                f"t{number}",
                NewTrajectory(group_id=group_size and f"g{number}", group_size=group_size, rollout_index=0),
            )
            for number in names
        ]
        statements.clear()
        made = pool._writer.submit(lambda txn, asked=asked: create_all(txn, asked)).result()
        assert [one.trajectory_id for one in made] == [one.trajectory_id for one in asked]
        created = len(statements)
        ends = [Completion(one.trajectory_id, "finished", 1.0) for one in asked]
        done = pool._writer.submit(lambda txn, ends=ends: complete_all(txn, ends)).result()
        assert {one.readiness for one in done} == {"ready"}
        # A new group is a statement of its own.
        taken.append(len(statements) - (len(asked) if group_size else 0))
        assert created < len(statements)
    assert taken[0] == taken[1] < 30
    assert pool.check() == []


def test_what_is_asked_for_together_is_as_one_after_the_other(pool):
    news = [Creation(f"t{number}", NewTrajectory(group_id="g", group_size=2)) for number in range(4)]
    others = [Creation("t0", NewTrajectory(group_id="g", group_size=3)), Creation("t0", news[0].new)]
    made = pool._writer.submit(lambda txn: create_all(txn, [*news, *others])).result()
    assert [getattr(one, "code", "made") for one in made] == ["made"] * 4 + ["conflict", "made"]
    ends = [Completion(f"t{number}", "finished", float(number)) for number in range(4)]
    ends += [Completion("t0", "failed", None), Completion("t0", "finished", 0.0), Completion("nothing", "failed", None)]
    done = pool._writer.submit(lambda txn: complete_all(txn, ends)).result()
    assert [getattr(one, "code", None) or one.readiness for one in done] == [
        *("ready", "ready", "excluded", "excluded"),
        *("conflict", "ready", "not_found"),
    ]
    assert {pool.get_trajectory(f"t{number}").excluded_reason for number in (2, 3)} == {"late_for_group"}
    group = pool.get_group("g")
    assert (group.members, group.ended, group.served, group.closed_by) == (4, 4, 2, "size")
    assert pool.check() == []


def test_large_arrays_are_written_in_parts_once_all_are_checked(pool, monkeypatch, statements):
    monkeypatch.setattr(signal_rules, "PART_BYTES", 64)
    steps_of(pool, 6)
    sent = [Annotation(name="a", values=np.arange(2 * 6.0).reshape(2, 6), step_id=f"s{number}") for number in range(6)]
    later = Annotation(name="a", values=[1.0, 2.0, 3.0], step_id="later")
    assert [len(part) for part in signal_rules.in_parts(signal_rules.check_signals([*sent, later]))] == [1] * 6 + [1]
    wrong = [*sent, Annotation(name="b", values=[1.0], step_id="s0")]
    with pytest.raises(Exception, match="1 values for a reply of 2 tokens"):
        pool.add_signals(wrong)
    assert pool.get_annotations(step_ids=["s0"]) == []
    result = pool.add_signals([*sent, later])
    assert (result.changed, result.set, result.waiting) == (7, 6, ["later"])
    assert pool.add_annotations([*sent, later]) == 0
    assert [one.values.tolist() for one in pool.get_annotations(step_ids=["s5"])] == [sent[5].values.tolist()]
    assert pool.check() == []


def test_one_statement_changes_many_rows_of_postgres(postgres_pool):
    assert isinstance(postgres_pool, PostgresPool)
    altered = standing.EFFECTIVE.alteration
    assert altered is not None
    assert altered.text.count("unnest") == len(altered.types)
    assert standing._MASK.alteration is None
    steps_of(postgres_pool, 20)
    values = {
        f"t{number}": [5e-324, -0.0, 1.7976931348623157e308, 0.1, 1 / 3, -1e-17, 2.0][number] for number in range(7)
    }
    more = {f"s{number}": number / 7 for number in range(20)}
    sent = [Reward(value=value, trajectory_id=name) for name, value in values.items()]
    postgres_pool.add_rewards([*sent, *(Reward(value=value, step_id=name) for name, value in more.items())])
    found = {name: postgres_pool.get_trajectory(name).reward for name in values}
    assert list(map(repr, found.values())) == list(map(repr, values.values()))
    assert {name: postgres_pool.get_step(name).reward for name in more} == more
