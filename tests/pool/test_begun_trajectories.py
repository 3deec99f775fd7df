"""A trajectory that a step implies is inserted with what the steps of that transaction come to."""

import pytest

from agentworld.pool import open_store
from agentworld.pool.sqlite.connection import SqliteConnection
from agentworld.records import Exchange, Policy, Sampling, Step


@pytest.fixture
def written(monkeypatch):
    """The texts of statements that many rows go through."""
    texts = []
    plain, in_order = SqliteConnection.many, SqliteConnection.many_in_order

    def many(connection, statement, rows):
        texts.append(statement.text("sqlite"))
        plain(connection, statement, rows)

    def many_in_order(connection, statement, rows):
        if rows:
            texts.append(statement.text("sqlite"))
        in_order(connection, statement, rows)

    monkeypatch.setattr(SqliteConnection, "many", many)
    monkeypatch.setattr(SqliteConnection, "many_in_order", many_in_order)
    return texts


def step(number, trajectory="t"):
    return Step(
        step_id=f"{trajectory}{number}",
        trajectory_id=trajectory,
        prompt_ids=[1, 2, 3],
        response_ids=[4, 5],
        response_logprobs=[-0.5, -0.25],
        policy=Policy(model="m", run="r", version=7 - number),
        sampling=Sampling(temperature=0.5),
    )


def test_its_first_steps_are_counted_as_it_is_inserted(tmp_path, written):
    pool = open_store(f"sqlite:///{tmp_path / 'pool.db'}")
    try:
        assert {each.outcome for each in pool.append_steps([step(0), step(1), step(0, "other")])} == {"stored"}
        assert [text for text in written if text.startswith("UPDATE trajectories")] == []
        made = pool.get_trajectory("t")
        assert (made.step_count, made.prompt_tokens, made.response_tokens, made.sampled_tokens) == (2, 6, 4, 4)
        assert made.policy.version == 6
        assert pool.get_trajectory("other").step_count == 1
        assert pool.append_steps([step(2)])[0].outcome == "stored"
        assert [text for text in written if text.startswith("UPDATE trajectories")] != []
        made = pool.get_trajectory("t")
        assert (made.step_count, made.policy.version) == (3, 5)
        assert pool.list_steps(trajectory_id="t").items[2].sampling == Sampling(temperature=0.5)
        assert pool.check() == []
    finally:
        pool.close()


def test_one_that_a_failed_call_implies_counts_nothing(tmp_path):
    pool = open_store(f"sqlite:///{tmp_path / 'pool.db'}")
    try:
        told = {"dialect": "chat", "model": "m", "requested_model": "m", "messages": [], "sampling": Sampling()}
        failed = Exchange(exchange_id="x", trajectory_id="t", error={"code": "engine_error"}, **told)
        pool.submit_exchange(failed).result()
        made = pool.get_trajectory("t")
        assert (made.step_count, made.sampled_tokens, made.policy) == (0, 0, None)
    finally:
        pool.close()
