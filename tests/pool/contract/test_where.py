"""Both stores give the same answers to `where`, which are those of the language."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentworld.errors import QueryError
from agentworld.pool.memory import MemoryPool
from agentworld.pool.sqlite import SqlitePool
from agentworld.records import NewTrajectory, Policy, Reward

from ...query.strategies import expressions
from ..samples import ids, step


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    path = tmp_path_factory.mktemp("where") / "pool.db"
    stores = [MemoryPool(clock=lambda: 1.0), SqlitePool(path, clock=lambda: 1.0)]
    yield [fill(store) for store in stores]
    for store in stores:
        store.close()


@pytest.fixture(params=["memory", "sqlite"])
def filled(request, both):
    return both[request.param == "sqlite"]


def fill(pool):
    pool.set_policy(Policy("m", "r", 5))
    pool.create_trajectory(
        NewTrajectory(trajectory_id="t", group_id="g", task={"set": "maze", "size": 3, "deep": {"a": "b"}, "ok": True})
    )
    pool.create_trajectory(NewTrajectory(trajectory_id="u", agent="cli", metadata={"k": None, "n": 1.5}, attempt=2))
    pool.append_steps(
        [
            step("t", step_id="a", reward=0.5, labels={"quality": "bad", "n": 1}, policy=Policy("m", "r", 4)),
            step("t", step_id="b", labels={"quality": "good"}, policy=Policy("m", "r", 1), model="it's"),
            step("u", step_id="c", rewards={"format": 1.0}, policy=Policy("m", "old", 5), metadata={"flag": True}),
            step("u", step_id="d", policy=None, finish_reason="abort", latency_ms=20.0),
        ]
    )
    pool.complete_trajectory("t", "finished", 1.0)
    pool.add_rewards([Reward(value=-1.0, trajectory_id="u", name="shape")])
    pool.append_steps([step("t", step_id="e", policy=Policy("m", "old", 0))])
    return pool


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("reward >= 0.5", "a"),
        ("reward < 0.5", ""),
        ("not reward >= 0.5", "bcde"),
        ("reward is null", "bcde"),
        ("reward is not null", "a"),
        ("reward == null", "bcde"),
        ("0.5 <= reward", "a"),
        ("reward.format == 1", "c"),
        ("reward.reward == 0.5", "a"),
        ("label.quality != 'bad'", "bcde"),
        ("label.quality == 'bad'", "a"),
        ("label.n == 1", "a"),
        ("label.n == '1'", ""),
        ("label.n < 2.5", "a"),
        ("label.quality in ('bad', 'good')", "ab"),
        ("label.quality in ('bad', null)", "acde"),
        ("label.quality not in ('bad', 'good')", "cde"),
        ("complete", "ab"),
        ("ready and late", ""),
        ("late", "e"),
        ("late == true", "e"),
        ("late != true", "abcd"),
        ("late in (false)", "abcd"),
        ("excluded", "de"),
        ("open", "c"),
        ("readiness == 'excluded'", "de"),
        ("readiness in ('open', 'ready')", "abc"),
        ("excluded_reason == 'aborted'", "d"),
        ("staleness <= 2", "a"),
        ("staleness > 2", "b"),
        ("staleness is null", "cde"),
        ("policy.run == 'old'", "ce"),
        ("policy.version >= 4", "ac"),
        ("version == 1", "b"),
        ("policy.model != 'm'", "d"),
        ("step_index == 0", "ac"),
        ("agent is null", "abcde"),
        ("status == 'finished'", "abe"),
        ("group_id == 'g'", "abe"),
        ("task.set == 'maze'", "abe"),
        ("task.deep.a == 'b'", "abe"),
        ("task.deep == 'b'", ""),
        ("task.ok", "abe"),
        ("task.ok == true", "abe"),
        ("task.ok == 1", ""),
        ("task.size in (2, 3)", "abe"),
        ("metadata.flag", "c"),
        ("not metadata.flag", "abde"),
        ("model == 'it\\'s'", "b"),
        ('model == "it\'s"', "b"),
        ("latency_ms >= 20 or step_id == 'a'", "ad"),
        ("not (step_id == 'a' or step_id == 'b') and not late", "cd"),
        ("token_source == 'submitted' and prompt_length == 3 and response_length == 2", "abcde"),
        ("created_at > 0 and created_at < 1e12", "abcde"),
        ("step_id > 'b' and step_id <= 'd'", "cd"),
    ],
)
def test_steps(filled, where, expected):
    assert "".join(ids(filled.list_steps(where=where))) == expected


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("reward == 1", "t"),
        ("reward.shape < 0", "u"),
        ("status == 'open'", "u"),
        ("ready", "t"),
        ("step_count == 3", "t"),
        ("prompt_tokens >= 6 and response_tokens < 6", "u"),
        ("metadata.n == 1.5", "u"),
        ("metadata.k is null", "tu"),
        ("attempt > 1", "u"),
        ("group_size is null", "tu"),
        ("completed_at is not null", "t"),
        ("agent == 'cli'", "u"),
        ("staleness == 4", "t"),
        ("version < 5", "t"),
        ("group_id in ('g', 'h')", "t"),
    ],
)
def test_trajectories(filled, where, expected):
    assert "".join(ids(filled.list_trajectories(where=where))) == expected


def test_where_goes_with_other_filters_and_pages(filled):
    assert ids(filled.list_steps(where="not late", trajectory_id="t", order="newest")) == ["b", "a"]
    page = filled.list_steps(where="not late", limit=3)
    assert ids(page) + ids(filled.list_steps(where="not late", cursor=page.next_cursor)) == ["a", "b", "c", "d"]
    with pytest.raises(QueryError):
        filled.list_steps(where="nothing ==")


EXPRESSIONS = {subject: expressions(subject) for subject in ("steps", "trajectories")}


@pytest.mark.parametrize("subject", list(EXPRESSIONS))
@settings(max_examples=150, deadline=None, derandomize=True)
@given(data=st.data())
def test_stores_agree_on_any_expression(both, subject, data):
    where = data.draw(EXPRESSIONS[subject])

    def answer(pool):
        return ids(pool.list_steps(where=where) if subject == "steps" else pool.list_trajectories(where=where))

    memory, sqlite = (answer(store) for store in both)
    assert memory == sqlite
