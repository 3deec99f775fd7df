"""Versions on every store: what is taken, what it is called, how it is read, compared and divided."""

import signal
import threading

import msgspec
import pytest

from agentworld.cli.stopping import broken_off
from agentworld.curation.datasets.comparing import diff_datasets, row_changes
from agentworld.curation.datasets.reading import read_version, rows_of
from agentworld.curation.datasets.selecting import create_dataset
from agentworld.curation.datasets.verifying import verify_dataset
from agentworld.errors import InvalidRequestError, NotFoundError, QueryError
from agentworld.pool.keeping import Retention
from agentworld.records import Decision, Feedback, Reward, Selection, Splits
from tests.curation.datasets.filling import fill, run

HALVES = Splits(fractions={"train": 0.5, "test": 0.5})
EVERYTHING = Selection(splits=HALVES)


def names(pool, version):
    return [row.trajectory_id for row in rows_of(pool, version.version)]


def splits(pool, version):
    return {row.trajectory_id: row.split for row in rows_of(pool, version.version)}


def test_the_same_selection_has_the_same_name_on_every_store_and_twice(pool, memory):
    fill(pool)
    fill(memory)
    made = create_dataset(pool, "d", EVERYTHING, note="n", created_by="ann")
    other = create_dataset(memory, "e", EVERYTHING)
    assert made.version == f"d@{made.digest}"
    assert list(rows_of(pool, made.version)) == list(rows_of(memory, other.version))
    assert (made.digest, made.splits, made.steps) == (other.digest, other.splits, other.steps)
    assert create_dataset(pool, "d", EVERYTHING) == made == pool.get_dataset("d")
    assert [one.version for one in pool.list_datasets().items] == [made.version]
    assert (made.rows, made.policies[0].name, made.note, made.created_by) == (10, "weighing", "n", "ann")
    moved = create_dataset(pool, "d", msgspec.structs.replace(EVERYTHING, splits=Splits()))
    assert moved.digest != made.digest
    assert pool.pins(owner_kind="dataset", owner=made.version, trajectory_id="t1")


def test_a_row_holds_what_was_said_of_it(pool):
    fill(pool)
    made = create_dataset(pool, "d", Selection(where="task.task_set == 'sums'"))
    rows = {row.trajectory_id: row for row in rows_of(pool, made.version)}
    assert list(rows) == [f"t{number}" for number in range(6)]
    assert [row.position for row in rows.values()] == list(range(6))
    assert [rows[f"t{number}"].task_key for number in range(6)] == [f"sums/{number // 2}" for number in range(6)]
    assert rows["t1"].cluster == rows["t0"].cluster == "t0"
    assert rows["t1"].rewards == {"reward": 0.1, "style": 0.0}
    assert (rows["t1"].steps[0].rewards, rows["t1"].steps[0].reward) == ({"tests": 2.0}, None)
    assert rows["t2"].labels == {"good": {"b": 1, "a": [0.5]}}
    assert rows["t2"].steps[1].labels == {"cut": "x\0 \ud800"}
    assert [one.feedback_id for one in rows["t3"].feedback] == ["f4", "f3"]
    assert (rows["t4"].weight, rows["t5"].weight) == (2.0, None)


def test_what_is_not_ready_and_what_is_excluded_is_not_taken(pool):
    for number, (reward, status) in enumerate(((1.0, "finished"), (None, "finished"), (1.0, None), (1.0, "failed"))):
        run(pool, f"t{number}", reward=reward if status else None, status=status)
    run(pool, "other", channel="val")
    run(pool, "cut")
    pool.decide([Decision(verdict="exclude", step_id="cut-1", reason="bad")])

    def taken(**selection):
        made = create_dataset(pool, "d", Selection(**selection))
        return {row.trajectory_id: [step.step_id for step in row.steps] for row in rows_of(pool, made.version)}

    assert taken() == {"cut": ["cut-0"], "t0": ["t0-0", "t0-1"]}
    assert list(taken(unrewarded=True)) == ["cut", "t0", "t1"]
    assert list(taken(channel=None)) == ["cut", "other", "t0"]
    assert taken(unit="step", where="step_index == 1") == {"t0": ["t0-1"]}
    assert taken(unit="step", where="step_index == 1", unrewarded=True) == {"t0": ["t0-1"], "t1": ["t1-1"]}


@pytest.mark.parametrize(
    ("selection", "says"),
    [
        (Selection(channel="nowhere"), "no trajectories in the channel 'nowhere'"),
        (Selection(where="reward > 9"), "none of the 3 trajectories in the channel 'train' is selected"),
        (Selection(where="status == 'failed'"), "of the trajectories that `where` holds for: 1 excluded"),
        (Selection(where="reward is null and complete"), "1 complete.*Give rewards, or take those without"),
        (Selection(unit="step", where="trajectory_id == 'a'"), "of the steps that `where` holds for: 2 complete"),
    ],
)
def test_an_empty_selection_says_what_there_is_instead(memory, selection, says):
    run(memory, "a", reward=None)
    run(memory, "b", status="failed")
    run(memory, "c")
    with pytest.raises(InvalidRequestError, match=says.replace("`", ".")):
        create_dataset(memory, "d", selection)
    memory.decide([Decision(verdict="exclude", step_id=f"c-{at}", reason="bad") for at in range(2)])
    with pytest.raises(InvalidRequestError, match="none of the 1 trajectories that were selected has a step"):
        create_dataset(memory, "d")
    assert memory.list_datasets().items == []
    assert memory.pins() == []


def test_what_cannot_be_asked_for_is_refused(memory):
    run(memory, "a")
    for selection in (Selection(where="rewrd > 1"), Selection(unit="step", where="step_count > 1")):
        with pytest.raises(QueryError):
            create_dataset(memory, "d", selection)
    for arguments in (
        ("d/e", Selection()),
        ("d", Selection(channel="")),
        ("d", Selection(unit="group")),
        ("d", Selection(splits=Splits(fractions={"train": 0.5}))),
        ("d", {"where": "ready"}),
    ):
        with pytest.raises(InvalidRequestError):
            create_dataset(memory, *arguments)
    with pytest.raises(NotFoundError):
        create_dataset(memory, "d", parents=["none"])
    with pytest.raises(InvalidRequestError):
        create_dataset(memory, "d", note="x" * 10_001)


def test_many_trajectories_with_long_ids_and_a_long_query_are_taken(memory):
    ids = [f"{number:03d}".ljust(126, "x") for number in range(40)]
    for name in ids:
        run(memory, name, steps=1)
    where = "agent is null" + " or agent == 'somebody'" * 100
    made = create_dataset(memory, "d", Selection(where=where))
    assert names(memory, made) == ids
    with pytest.raises(QueryError, match="at most 3840"):
        create_dataset(memory, "d", Selection(where=where + " " * 1700))


@pytest.mark.parametrize("fault", [KeyboardInterrupt, RuntimeError])
def test_what_is_broken_off_leaves_nothing(pool, fault):
    for number in range(3):
        run(pool, f"t{number}")

    def break_off(stage, done, total):
        if stage == "freeze":
            assert pool.pins() != []
            raise fault

    with pytest.raises(fault):
        create_dataset(pool, "d", progress=break_off)
    assert pool.list_datasets().items == []
    assert pool.pins() == []


def test_what_changes_meanwhile_is_read_as_it_is_in_the_end(memory):
    for number in range(4):
        run(memory, f"t{number}")
    lines = []

    def change(stage, done, total):
        if stage == "group":
            memory.add_rewards([Reward(value=0.9, trajectory_id="t1")])
            memory.delete_trajectories(["t2"])
            memory.decide([Decision(verdict="exclude", step_id=f"t3-{at}", reason="bad") for at in range(2)])

    made = create_dataset(memory, "d", progress=change, say=lines.append)
    assert {row.trajectory_id: row.reward for row in rows_of(memory, made.version)} == {"t0": 0.5, "t1": 0.9}
    assert [row.position for row in rows_of(memory, made.version)] == [0, 1]
    assert any("1 trajectories were changed" in line for line in lines)
    assert any("1 trajectories were left out" in line for line in lines)


@pytest.mark.parametrize("times", [1, 9])
def test_what_is_taken_away_before_it_is_pinned_is_left_out(memory, monkeypatch, times):
    for number in range(12):
        run(memory, f"t{number:02}", task={"task_id": number // 2})
    put, left = memory.put_dataset_rows, iter(range(0, 2 * times, 2))

    def late(building, rows):
        for number in left:
            memory.delete_trajectories([f"t{number:02}"])
            break
        return put(building, rows)

    monkeypatch.setattr(memory, "put_dataset_rows", late)
    if times > 5:
        with pytest.raises(NotFoundError):
            create_dataset(memory, "d")
        assert memory.pins() == []
        return
    lines = []
    made = create_dataset(memory, "d", say=lines.append)
    assert names(memory, made) == [f"t{number:02}" for number in range(1, 12)]
    assert next(rows_of(memory, "d")).cluster == "t01"
    assert verify_dataset(memory, "d").is_ok
    assert "1 trajectories were changed while this was read, and are no longer selected" in lines


def test_a_child_keeps_what_its_parents_divided(pool):
    def task(number):
        return {"task_id": number}

    for number in range(8):
        run(pool, f"a{number}", task=task(number), text=f"question {number}")
    first = create_dataset(pool, "d", Selection(splits=HALVES))
    assert sorted(splits(pool, first).values()) == ["test"] * 4 + ["train"] * 4
    for number in range(16):
        run(pool, f"b{number}", task=task(number), text=f"question {number}")
    selection = Selection(splits=Splits(fractions={"train": 0.5, "test": 0.5}, seed=1))
    free = create_dataset(pool, "d", selection)
    child = create_dataset(pool, "d", selection, parents=["d@" + first.digest[:8]])
    assert child.parents == [first.version]
    before, after = splits(pool, first), splits(pool, child)
    assert {name: after[name] for name in before} == before
    assert all(after[f"b{number}"] == before[f"a{number}"] for number in range(8))
    assert {name: splits(pool, free)[name] for name in before} != before
    assert (child.splits["train"].rows, child.splits["test"].rows) == (12, 12)
    # What is not selected any more still draws its task.
    later = create_dataset(
        pool, "d", Selection(where="trajectory_id like 'b%'", splits=selection.splits), parents=[first.version]
    )
    assert all(splits(pool, later)[f"b{number}"] == before[f"a{number}"] for number in range(8))


@pytest.mark.parametrize(("by", "near"), [("task", 0.8), ("task", None), ("group", None)])
def test_a_child_keeps_what_its_parents_divided_of_what_was_deleted_on_request(pool, by, near):
    def fresh(letter, seed):
        for number in range(8):
            run(pool, f"{letter}{number}", steps=1, task={"task_id": number}, group_id=f"g{number}", text=f"q{number}")
        fractions = {"train": 0.5, "test": 0.5}
        where = f"trajectory_id like '{letter}%'"
        return Selection(where=where, splits=Splits(fractions=fractions, by=by, near_duplicates=near, seed=seed))

    first = create_dataset(pool, "d", fresh("a", 0))
    before = splits(pool, first)
    pool.delete_trajectories([f"a{number}" for number in range(4)], "asked")
    child = splits(pool, create_dataset(pool, "d", fresh("b", 5), parents=[first.version]))
    assert [child[f"b{number}"] for number in range(8)] == [before[f"a{number}"] for number in range(8)]


def test_what_is_of_one_text_stays_together_with_and_without_a_task(memory):
    pairs = []
    for number in range(20):
        long = " ".join(f"{number}w{at}" for at in range(30))
        kinds = [
            ({"task_id": f"n{number}", "prompt": f"Solve {number}"}, "Begin"), (None, f"solve  {number}"),
            ({"task_id": f"s{number}"}, f"first wording {number}"), ({"task_id": f"s{number}"}, long),
            ({"task_id": f"r{number}"}, f"{long} please"),
        ]  # fmt: skip
        for at, (task, text) in enumerate(kinds):
            run(memory, f"t{number}-{at}", steps=1, task=task, text=text)
        pairs += [(f"t{number}-0", f"t{number}-1"), (f"t{number}-3", f"t{number}-4")]
    found = splits(memory, create_dataset(memory, "d", EVERYTHING))
    assert [pair for pair in pairs if found[pair[0]] != found[pair[1]]] == []
    assert set(found.values()) == {"train", "test"}


def test_what_a_parent_held_out_is_never_trained_on(memory):
    for number in range(12):
        run(memory, f"t{number:02}", steps=1, task={"task_id": number}, text=f"question {number}")
    one, other = (
        splits(
            memory, create_dataset(memory, f"d{seed}", Selection(splits=Splits(fractions=HALVES.fractions, seed=seed)))
        )
        for seed in (0, 99)
    )
    for fractions in ({"train": 0.5, "eval": 0.5}, {"train": 1.0}):
        with pytest.raises(InvalidRequestError, match="has rows in test") as raised:
            create_dataset(memory, "e", Selection(splits=Splits(fractions=fractions)), parents=["d0"])
        assert raised.value.path == "parents"
    lines = []
    shares = Splits(fractions={"test": 0.1, "train": 0.8, "val": 0.1})
    both = splits(
        memory, create_dataset(memory, "e", Selection(splits=shares), parents=["d0", "d99"], say=lines.append)
    )
    moved = [name for name in both if one[name] != other[name]]
    assert moved
    assert all(both[name] == ("test" if name in moved else one[name]) for name in both)
    assert f"{len(moved)} rows of parents change their split" in lines[0]


def test_deletion_on_request_meanwhile_begins_it_again(memory, monkeypatch):
    for number in range(3):
        run(memory, f"t{number}", steps=1)
    freeze, left, lines = memory.freeze_dataset, ["t1"], []

    def late(building, version):
        memory.delete_trajectories(left)
        left.clear()
        return freeze(building, version)

    monkeypatch.setattr(memory, "freeze_dataset", late)
    made = create_dataset(memory, "d", say=lines.append)
    assert names(memory, made) == ["t0", "t2"]
    assert lines == ["something was deleted on request while this was read, so it was begun again"]
    with pytest.raises(InvalidRequestError, match="up to 200"):
        create_dataset(memory, "d", created_by="x" * 201)


def test_what_is_kept_together_and_how_far_the_fractions_were_missed(memory):
    sentence = "the quick brown fox jumps over the lazy dog and then it sleeps for a while under the old tree"
    for number in range(6):
        run(memory, f"a{number}", text=f"{sentence} {number}", group_id=f"g{number % 2}")
    for number in range(2):
        run(memory, f"b{number}", text=f"something else {number} of which there is no other one at all")
    lines = []
    made = create_dataset(memory, "d", Selection(splits=HALVES), say=lines.append)
    assert len({splits(memory, made)[f"a{number}"] for number in range(6)}) == 1
    assert {row.cluster for row in rows_of(memory, made.version)} == {"a0", "b0", "b1"}
    assert any("6 of 8 trajectories are in one cluster" in line for line in lines)
    assert any("rows, 4 were asked for" in line for line in lines)
    for by, together in (("group", [{"a0", "a2", "a4"}, {"a1", "a3", "a5"}, {"b0"}, {"b1"}]), ("trajectory", None)):
        alone = Splits(fractions={"train": 0.5, "test": 0.5}, by=by, near_duplicates=None)
        divided = create_dataset(memory, "d", Selection(splits=alone))
        found = {}
        for row in rows_of(memory, divided.version):
            found.setdefault(row.cluster, set()).add(row.trajectory_id)
        assert sorted(found.values(), key=sorted) == (together or [{name} for name in names(memory, divided)])


def test_a_version_is_read_as_it_was_frozen(pool):
    fill(pool)
    made = create_dataset(pool, "d", EVERYTHING)
    pool.add_rewards([Reward(value=9.0, trajectory_id="t1"), Reward(value=9.0, name="tests", step_id="t1-0")])
    pool.add_feedback([Feedback(kind="label", step_id="t2-1", name="new", value=1)])
    pool.delete_trajectories(["t5"], "asked")
    gone = []
    found = {one.row.trajectory_id: one for one in read_version(pool, "d", skipped=gone.append)}
    assert list(found) == [name for name in names(pool, made) if name != "t5"]
    assert [(one.trajectory_id, one.why, one.reason) for one in gone] == [("t5", "deleted", "asked")]
    one = found["t1"]
    assert (one.trajectory.reward, one.trajectory.rewards) == (0.1, {"reward": 0.1, "style": 0.0})
    assert one.steps[0].rewards == {"tests": 2.0}
    assert "new" not in found["t2"].steps[1].labels
    assert one.steps[1].prompt_ids == [1, 2, 3, 10, 0, 4]
    assert one.steps[1].prompt_messages[-1].content == "And then?"
    assert one.steps[0].response_logprobs == [-0.5, None]
    assert found["odd"].steps[0].prompt_messages[1].text == "a\0b \ud800 \U00100001 \ud83d\ude00"
    halves = [one.row.trajectory_id for split in ("train", "test") for one in read_version(pool, "d", split=split)]
    assert sorted(halves) == sorted(found)
    with pytest.raises(NotFoundError, match="train, test"):
        read_version(pool, "d", split="val")


def test_versions_are_compared_row_by_row(pool):
    fill(pool)
    first = create_dataset(pool, "d", Selection(where="reward < 0.5", splits=Splits(near_duplicates=None)))
    pool.add_rewards([Reward(value=0.45, trajectory_id="t4"), Reward(value=1.0, name="x", step_id="t3-1")])
    pool.add_feedback([Feedback(kind="label", step_id="t2-0", name="new", value=1)])
    pool.decide([Decision(verdict="exclude", step_id="t1-1", reason="bad")])
    selection = Selection(where="reward > 0.05", splits=Splits(near_duplicates=None))
    second = create_dataset(pool, "e", selection)
    found = diff_datasets(pool, first.version, second.version)
    assert (found.added, found.removed, found.changed, found.same) == (5, 1, 4, 0)
    changes = {one.trajectory_id: one for one in row_changes(pool, "d", "e")}
    assert {name: one.what for name, one in changes.items() if one.change == "changed"} == {
        "t1": ["steps", "cluster"],
        "t2": ["labels", "feedback"],
        "t3": ["rewards"],
        "t4": ["rewards"],
    }
    assert changes["t0"].change == "removed"
    assert found.what == {"steps": 1, "cluster": 1, "labels": 1, "feedback": 1, "rewards": 2}
    assert sorted(changes.values(), key=lambda one: one.trajectory_id) == list(changes.values())
    assert sorted(found.samples, key=lambda one: one.trajectory_id) == list(changes.values())
    assert len(diff_datasets(pool, "d", "e", samples=1).samples) == 3
    assert diff_datasets(pool, "d", "d").is_empty
    swapped = diff_datasets(pool, "e", "d")
    assert (swapped.added, swapped.removed) == (1, 5)
    pool.delete_trajectories(["t4"])  # Of which nothing is left that the change could be told by.
    assert {one.trajectory_id: one.what for one in row_changes(pool, "d", "e")}["t4"] == ["unknown"]


def test_what_is_frozen_is_kept_from_retention(pool):
    for number in range(4):
        run(pool, f"t{number}")
    made = create_dataset(pool, "d", Selection(where="trajectory_id in ('t1', 't2')"))
    taken = pool.collect(Retention(max_steps=0), include_waiting=True)
    assert (taken.trajectories, taken.kept_pinned) == (2, 2)
    assert len(list(read_version(pool, made.version))) == 2
    pool.delete_dataset(made.version)
    assert pool.collect(Retention(max_steps=0), include_waiting=True).trajectories == 2


def test_two_who_freeze_the_same_at_once_get_one_version(pool):
    for number in range(3):
        run(pool, f"t{number}")
    made = []
    threads = [threading.Thread(target=lambda: made.append(create_dataset(pool, "d"))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({one.version for one in made}) == 1 == len(pool.list_datasets().items)
    assert len(made) == 3
    assert len(pool.pins()) == 3


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_breaks_it_off_and_leaves_nothing(memory, number):
    run(memory, "t1")
    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt), broken_off():
        create_dataset(memory, "d", progress=lambda stage, *_: stage == "freeze" and signal.raise_signal(number))
    assert signal.getsignal(number) is before
    assert (memory.pins(), memory.list_datasets().items) == ([], [])
