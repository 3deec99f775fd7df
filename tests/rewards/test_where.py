"""`where` of each evaluator, and files that are taken as one."""

import pytest

from agentworld.errors import ConfigError
from agentworld.rewards.registry import evaluators_from, read_evaluators
from agentworld.rewards.running import RunSettings, follower_name, plan_of, run_rewards
from tests.rewards.counting_evaluators import counted
from tests.rewards.pools import counting, failures, planned, put
from tests.rewards.test_running import (
    clock,
    empty_file,
    kept_connections,
    log,
    memory,
    pool,
    postgres_kept,
    postgres_url,
    postgres_wipe,
)

__all__ = ["clock", "empty_file", "kept_connections", "log", "memory", "pool"]
__all__ += ["postgres_kept", "postgres_url", "postgres_wipe"]

WORD = {"kind": "exact", "name": "word", "where": "task.kind == 'word'"}
NUMBER = {"kind": "numeric", "answer": "last_number", "where": "task.kind != 'word'"}
REST = {"kind": "regex", "name": "rest", "pattern": "."}


def test_the_first_that_matches_judges(pool):
    put(pool, "w", "yes", task={"kind": "word", "reference": "yes"})
    put(pool, "n", "it is 3", task={"kind": "number", "reference": "4"})
    put(pool, "x", "what", task={})
    plan = planned(WORD, {**NUMBER, "where": "task.kind == 'number'"}, REST)
    report = run_rewards(pool, plan, RunSettings())
    assert {name: tally.evaluated for name, tally in report.evaluators.items()} == {"word": 1, "numeric": 1, "rest": 1}
    assert {one.trajectory_id: one.reward for one in pool.list_trajectories().items} == {"w": 1.0, "n": 0.0, "x": 1.0}
    sources = {one.target_id: one.evaluator for one in pool.list_evaluations().items}
    assert sources == {"w": "word", "n": "numeric", "x": "rest"}
    # Alone it leaves to the others what is theirs, and another `where` finds known what it said before.
    only = planned(WORD, {**NUMBER, "where": "task.kind == 'number'"}, REST, only=("rest",))
    assert run_rewards(pool, only, RunSettings(name="only")).evaluators["rest"].cached == 1
    wider = planned({**WORD, "where": "has task.kind or task.reference == 'yes'"})
    tally = run_rewards(pool, wider, RunSettings()).evaluators["word"]
    assert (tally.cached, tally.evaluated) == (1, 1)


def test_what_follows_waits_for_those_alone_that_judge(pool):
    for n, kind in enumerate(["word", "word", "number", "number"]):
        task = {"kind": kind, "reference": "1" if kind == "number" else "it is 1"}
        put(pool, f"t{n}", f"it is {n % 2}", group_id="g", group_size=4, task=task)
    parts = [{**each, "reward": "correct"} for each in (WORD, NUMBER)]
    plan = planned(
        *parts,
        {"kind": "sum", "weights": {"correct": 2.0}, "where": "task.kind == 'number'", "reward": "double"},
        {"kind": "normalise", "value": "correct", "by": "range", "where": "task.kind == 'number'"},
        {"kind": "clip", "value": "double", "low": 0.0, "reward": "clipped"},
    )
    report = run_rewards(pool, plan, RunSettings())
    found = {one.trajectory_id: one.rewards for one in pool.list_trajectories().items}
    assert found["t2"] == {"correct": 0.0, "double": 0.0, "reward": 0.0, "clipped": 0.0}
    assert found["t3"] == {"correct": 1.0, "double": 2.0, "reward": 1.0, "clipped": 2.0}
    assert (found["t0"], found["t1"]) == ({"correct": 0.0}, {"correct": 1.0})
    # What has no `where` of its own fails where its input does not match.
    assert report.evaluators["clip"].failed == 2
    assert "its `where` does not match" in failures(pool)["clip", "trajectory", "t0"]


def test_a_group_of_which_nobody_matches_is_not_asked_about(memory, log):
    put(memory, "t", "it is 1", group_id="g", group_size=1)
    report = run_rewards(memory, planned(counting("half", log, where="task.kind == 'word'")), RunSettings())
    assert (report.groups, report.failed, counted(log)) == (1, 0, [])


def test_a_run_with_another_where_is_another_run():
    first, second = ({**WORD, "where": where} for where in ("has reward", "open"))
    names = {follower_name(planned(*tables), RunSettings()) for tables in ([first], [second], [first, REST], [REST])}
    assert len(names) == 4
    assert planned(first).fingerprints == planned(second).fingerprints


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ([{**WORD, "where": "task.kind = 'word'"}], "position 10"),
        ([{**WORD, "where": 3}], "where must be a text"),
        ([{**WORD, "where": "finish_reason == 'stop'"}], "finish_reason"),
        ([REST, WORD], "rest and word both give 'reward'"),
        ([{"kind": "steps", "of": {"kind": "exact", "where": "complete"}}], "set it beside `of`"),
    ],
)
def test_what_cannot_be_meant_is_refused_when_the_file_is_read(tables, message):
    with pytest.raises(ConfigError) as caught:
        evaluators_from(tables, "file.toml")
    assert message in str(caught.value)
    assert str(caught.value).startswith("file.toml")


def test_several_files_are_as_one(tmp_path):
    for name, table in {"a": WORD, "b": NUMBER, "c": REST}.items():
        (tmp_path / f"{name}.toml").write_text(
            "[[evaluator]]\n" + "".join(f'{key} = "{value}"\n' for key, value in table.items())
        )
    paths = [tmp_path / f"{name}.toml" for name in "abc"]
    plan = plan_of(read_evaluators(*paths))
    assert [each.name for each in plan.evaluators] == ["word", "numeric", "rest"]
    assert len(plan.rivals["rest"]) == 2
    with pytest.raises(ConfigError, match=r"b\.toml: rest and numeric both give 'reward'"):
        read_evaluators(paths[2], paths[1])
    with pytest.raises(ConfigError, match=r"two evaluators are called 'word', one of them in .*a\.toml"):
        read_evaluators(*paths[:2], _renamed(paths[0]))


def _renamed(path):
    other = path.with_name("d.toml")
    other.write_text(path.read_text().replace("'word'\"", "'other'\""))
    return other
