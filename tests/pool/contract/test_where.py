"""All stores give the same answers to `where`, which are those of the language."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentworld.errors import QueryError
from agentworld.pool.memory import MemoryPool
from agentworld.pool.postgres import PostgresPool
from agentworld.pool.sqlite import SqlitePool
from agentworld.records import Annotation, BatchSpec, Feedback, NewTrajectory, Policy, Reward
from tests.examples import examples

from ...query.strategies import expressions
from ..samples import finished, ids, step

STORES = ["memory", "sqlite", "postgres"]


@pytest.fixture(scope="module")
def stores(tmp_path_factory, postgres):
    """Each store with the same content. `now` is 5."""
    path = tmp_path_factory.mktemp("where") / "pool.db"
    opened = {
        "memory": MemoryPool(clock=lambda: 5.0),
        "sqlite": SqlitePool(path, clock=lambda: 5.0),
        "postgres": PostgresPool(postgres.fresh_pool_url(), clock=lambda: 5.0),
    }
    yield {name: fill(store) for name, store in opened.items()}
    for store in opened.values():
        store.close()


@pytest.fixture(params=STORES)
def filled(request, stores):
    return stores[request.param]


def fill(pool):
    pool.set_policy(Policy("m", "r", 5))
    pool.create_trajectory(
        NewTrajectory(trajectory_id="t", group_id="g", task={"set": "maze", "size": 3, "deep": {"a": "b"}, "ok": True})
    )
    pool.create_trajectory(
        NewTrajectory(
            trajectory_id="u",
            agent="cli",
            metadata={"k": None, "n": 1.5, "big": 2**64 - 1, "a.b": {"c": 1}, "list": ["x"]},
            attempt=2,
            user="Zoë",
            priority=2.5,
        )
    )
    pool.append_steps(
        [
            step("t", step_id="a", reward=0.5, labels={"quality": "bad", "n": 1}, policy=Policy("m", "r", 4)),
            step("t", step_id="b", labels={"quality": "good"}, policy=Policy("m", "r", 1), model="it's"),
            step("u", step_id="c", rewards={"format": 1.0}, policy=Policy("m", "old", 5), metadata={"flag": True}),
            step(
                "u",
                step_id="d",
                policy=None,
                finish_reason="abort",
                latency_ms=20.0,
                created_at=2.0,
                agent="50% of [x]",
                response_logprobs=None,
                prompt_messages=None,
            ),
        ]
    )
    pool.complete_trajectory("t", "finished", 1.0)
    pool.add_rewards([Reward(value=-1.0, trajectory_id="u", name="shape")])
    pool.add_feedback([Feedback(kind="label", trajectory_id="u", name="quality", value="good", feedback_id="f")])
    values = [0.5, 0.25]
    pool.add_annotations([Annotation(name="v", values=values, step_id="a", shape=(2,))])
    pool.add_annotations([Annotation(name="teacher's v", values=values, trajectory_id="u", shape=(2,))])
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
        ("agent is null", "abce"),
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
        ("has reward.format", "c"),
        ("has(label.quality) and not has label.n", "b"),
        ("has logprobs", "abce"),
        ("has messages", "abce"),
        ("has tokens", "abcde"),
        ("has annotation.v", "a"),
        ('has annotation.w or has annotation."teacher\'s v"', ""),
        ("label.quality like 'b_d'", "a"),
        ("label.quality like 'B%'", ""),
        ("label.n like '1'", ""),
        ("agent like '50\\% of [x]'", "d"),
        ("agent like '%[x%' and agent not like '%x'", "d"),
        ("agent not like '%'", "abce"),
        ("created_at < now - 1s", "d"),
        ("created_at >= now - 2s and created_at < now + 1h", "abce"),
        ("created_at == now or created_at in (2, now + 1w)", "abcde"),
        ("created_at > '1970-01-01T00:00:02Z'", "abce"),
        ("created_at > '1970-01-02'", ""),
        ("user == 'Zoë'", "cd"),
        ("user like 'Z%' and priority > 2", "cd"),
        ("priority == 0", "abe"),
        ("meta.flag", "c"),
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
        ("label.quality == 'good'", "u"),
        ('has annotation."teacher\'s v"', "u"),
        ("has annotation.v", ""),
        ("user is null", "t"),
        ("user > 'Zo' and user < 'Zp'", "u"),
        ("user > 'Zoz'", "u"),
        ("priority >= 2.5", "u"),
        ("meta.'a.b'.c == 1", "u"),
        ("meta.a.b.c == 1 or meta.list.0 == 'x'", ""),
        ("has meta.list and not meta.list", "u"),
        ("meta.big > 9223372036854775807 and meta.big == 18446744073709551615", "u"),
        ("completed_at == now", "t"),
        ("completed_at < now or created_at > now", ""),
        ("masked", ""),
        ("sampled_tokens > 0", "tu"),
        ("task.size in (3.0, '4') and task.set like 'm%e'", "t"),
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
@settings(max_examples=examples(100), deadline=None, derandomize=True)
@given(data=st.data())
def test_stores_agree_on_any_expression(stores, subject, data):
    where = data.draw(EXPRESSIONS[subject])

    def answer(pool):
        return ids(pool.list_steps(where=where) if subject == "steps" else pool.list_trajectories(where=where))

    memory = answer(stores["memory"])
    assert {name: answer(store) for name, store in stores.items()} == dict.fromkeys(STORES, memory)


def test_now_is_the_moment_of_each_query(pool, clock):
    first = clock.now
    finished(pool, "t", reward=1.0)
    where = "created_at >= now - 1m"
    assert ids(pool.list_trajectories(where=where)) == ["t"]
    clock.now = first + 61
    assert ids(pool.list_trajectories(where=where)) == []
    assert ids(pool.list_trajectories(where="created_at >= now - 2m")) == ["t"]


def test_a_lease_asks_with_the_moment_of_the_lease(pool, clock):
    finished(pool, "t", reward=1.0)
    spec = BatchSpec(method="reinforce", unit="trajectory", size=1, where="completed_at <= now - 1h")
    consumer = pool.consumer("c")
    assert consumer.lease(spec) is None
    clock.now += 3600
    assert [item.key for item in consumer.lease(spec).items] == ["t"]


@pytest.mark.parametrize("text", ["a\0b", "\ud83d", "\U00100001", "\U00100801x"])
def test_texts_that_no_engine_holds_are_found(pool, text):
    pool.create_trajectory(NewTrajectory(trajectory_id="t", metadata={"k": text, text: 1}))
    pool.create_trajectory(NewTrajectory(trajectory_id="u", metadata={"k": "a"}))
    for where in (f"meta.k == '{text}'", f"meta.k like '{text}%'", f"meta.k in ('x', '{text}')", "meta.k != 'a'"):
        assert ids(pool.list_trajectories(where=where)) == ["t"]
    if "\0" not in text:  # No key of an expression holds a control character.
        assert ids(pool.list_trajectories(where=f"meta.'{text}' == 1")) == ["t"]


def test_names_beyond_the_first_plane_are_found(pool):
    names = ("\U00100001", "\U00100801x", "\uffff")
    for number, name in enumerate(names):
        pool.create_trajectory(NewTrajectory(trajectory_id=f"t{number}", agent=name, user=name))
    for number, name in enumerate(names):
        for where in (f"agent == '{name}'", f"user like '{name}'", f"user in ('{name}')"):
            assert ids(pool.list_trajectories(where=where)) == [f"t{number}"]
    assert ids(pool.list_trajectories(where="user > '\uffff'")) == ["t0", "t1"]
