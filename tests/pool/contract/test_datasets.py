"""Dataset versions: built row by row, frozen under their digest, never changed; their trajectories stay until asked."""

import pytest

from agentworld.errors import ConflictError, InvalidRequestError, NotFoundError
from agentworld.pool.dataset_rules import digested_task
from agentworld.pool.keeping.records import Retention
from agentworld.records import DatasetRow, DatasetVersion, Feedback, FrozenStep, Selection, SplitCount

from ..samples import finished

DAY = 86_400.0


def digest(number):
    """32 hex digits."""
    return f"{number:032x}"


def manifest(name, number, rows, **changes):
    """Of so many rows, as `row` divides them."""
    split = {"train": rows - rows // 3, "test": rows // 3}
    values = {
        "version": f"{name}@{digest(number)}",
        "name": name,
        "digest": digest(number),
        "selection": Selection(where="reward > 0", channel="train"),
        "rows": rows,
        "steps": rows,
        "splits": {name: SplitCount(rows=count, steps=count) for name, count in split.items() if count},
        "note": "\udc00 of people",
        "manifest_digest": digest(7),
        "created_at": 5.0,
        **changes,
    }
    return DatasetVersion(**values)


def row(position, trajectory_id, step_ids, **changes):
    values = {
        "position": position,
        "trajectory_id": trajectory_id,
        "digest": digest(100 + position),
        "split": "test" if position % 3 == 2 else "train",
        "steps": [
            FrozenStep(one, digest(n), {"reward": 1.0}, 1.0, {"l": ["\udc00"]}) for n, one in enumerate(step_ids)
        ],
        "task_key": "task",
        "cluster": trajectory_id,
        "rewards": {"reward": 0.1 + 0.2},
        "reward": 0.1 + 0.2,
        "labels": {"seen": {"by": "ann"}},
        "weight": 0.5,
        "feedback": [Feedback(kind="comment", comment="said of it", trajectory_id=trajectory_id, feedback_id="f")],
        **changes,
    }
    return DatasetRow(**values)


@pytest.fixture
def made(pool):
    """Rows of five trajectories that are there."""
    found = []
    for position, name in enumerate(["a", "b", "c", "d", "e"]):
        found.append(row(position, name, finished(pool, name, reward=1.0, steps=2)))
    return found


def freeze(pool, rows, number=1, name="math"):
    building = pool.begin_dataset(name)
    pool.put_dataset_rows(building, rows)
    return pool.freeze_dataset(building, manifest(name, number, len(rows)))


def held(pool):
    """How many trajectories a collection of everything would leave, and why."""
    done = pool.collect(Retention(max_steps=0), dry_run=True, include_waiting=True)
    return done.kept_pinned


def test_a_version_reads_as_it_was_frozen(pool, made, clock):
    building = pool.begin_dataset("math")
    pool.put_dataset_rows(building, made[:2])
    pool.put_dataset_rows(building, [])
    pool.put_dataset_rows(building, made[2:])
    with pytest.raises(NotFoundError):
        pool.get_dataset("math")
    assert pool.list_datasets().items == []
    before = pool.stats().last_event
    frozen = pool.freeze_dataset(building, manifest("math", 1, 5, state="building"))
    assert frozen == manifest("math", 1, 5)
    [told] = pool.events(before, channel="train")
    assert (told.kind, told.data) == ("dataset.frozen", {"version": frozen.version, "rows": 5, "steps": 5})
    for asked in ("math", frozen.version, f"math@{digest(1)[:6]}"):
        assert pool.get_dataset(asked) == frozen
    assert pool.dataset_rows(frozen.version) == made
    assert pool.dataset_rows("math", after=1, limit=2) == made[2:4]
    assert pool.dataset_rows("math", split="test") == [made[2]]
    assert pool.dataset_rows("math", split="none") == []
    assert pool.datasets_of("b") == [frozen.version]
    assert pool.datasets_of("nothing") == []
    pins = pool.pins(owner_kind="dataset")
    assert [(pin.owner, pin.trajectory_id, pin.created_at) for pin in pins] == [
        (frozen.version, name, clock.now) for name in "abcde"
    ]
    for refused in (
        lambda: pool.put_dataset_rows(building, [row(5, "f", [])]),
        lambda: pool.freeze_dataset(building, manifest("math", 2, 5)),
        lambda: pool.drop_building(building),
    ):
        with pytest.raises(ConflictError, match="frozen"):
            refused()
    assert pool.check() == []


def test_the_latest_is_meant_by_the_name_and_lists_begin_with_it(pool, made):
    names = [("math", 1), ("code", 2), ("math", 0xA << 124), ("math", (0xA << 124) + 1)]
    versions = [freeze(pool, made[:number], digits, name).version for number, (name, digits) in enumerate(names, 1)]
    assert pool.get_dataset("math").version == versions[3]
    assert pool.get_dataset("code").version == versions[1]
    listed = pool.list_datasets(limit=3)
    assert [one.version for one in listed.items] == [versions[3], versions[2], versions[1]]
    assert [one.version for one in pool.list_datasets(cursor=listed.next_cursor).items] == [versions[0]]
    assert [one.version for one in pool.list_datasets(name="math").items] == [versions[3], versions[2], versions[0]]
    assert pool.datasets_of("a") == sorted(versions)
    with pytest.raises(ConflictError, match="2 versions begin with"):
        pool.get_dataset("math@a00000")
    for absent in ("other", "math@ffffff", f"code@{digest(1)}"):
        with pytest.raises(NotFoundError):
            pool.get_dataset(absent)
    for malformed in ("", "a b", "math@12345", "math@XYZXYZ", "@" + digest(1), f"math@{digest(1)}0", None, 7):
        with pytest.raises(InvalidRequestError):
            pool.get_dataset(malformed)
    with pytest.raises(InvalidRequestError, match="NAME@DIGEST"):
        pool.delete_dataset("math")


def test_the_same_version_again_is_the_one_that_is_there(pool, made):
    first = freeze(pool, made[:3])
    building = pool.begin_dataset("math")
    pool.put_dataset_rows(building, made[:3])
    before = pool.stats().last_event
    again = pool.freeze_dataset(building, manifest("math", 1, 3, note="later"))
    assert again == first == pool.get_dataset("math")
    assert pool.stats().last_event == before
    assert len(pool.pins()) == 3
    with pytest.raises(NotFoundError):
        pool.put_dataset_rows(building, [made[3]])
    assert pool.check() == []


def test_rows_that_cannot_be_put_are_named_and_none_is(pool, made):
    building = pool.begin_dataset("math")
    pool.put_dataset_rows(building, made[:2])
    steps = made[2].steps
    faults = [
        (row(2, "nowhere", []), NotFoundError, "rows[1].trajectory_id"),
        (row(3, "d", ["nowhere"]), NotFoundError, "rows[1].steps[0].step_id"),
        (row(3, "d", [steps[0].step_id]), NotFoundError, "rows[1].steps[0].step_id"),
        (row(4, "d", []), InvalidRequestError, "rows[1].position"),
        (row(3, "c", []), InvalidRequestError, "rows[1].trajectory_id"),
        (row(3, "a", []), InvalidRequestError, "rows[1].trajectory_id"),
        (row(3, "d", [], digest="00"), InvalidRequestError, "rows[1].digest"),
        (row(3, "d", [], split="a/b"), InvalidRequestError, "rows[1].split"),
        (row(3, "d", ["x", "x"]), InvalidRequestError, "rows[1].steps[1].step_id"),
        (row(3, "d", [], labels={"l": object()}), InvalidRequestError, None),
        ("row", InvalidRequestError, "rows[1]"),
    ]
    for bad, error, path in faults:
        if isinstance(bad, DatasetRow) and bad.trajectory_id == "nowhere":
            bad.position = 3
        with pytest.raises(error) as raised:
            pool.put_dataset_rows(building, [made[2], bad])
        assert path in (None, raised.value.path)
    with pytest.raises(InvalidRequestError, match="at most 1000"):
        pool.put_dataset_rows(building, [made[2]] * 1001)
    for number in (building + 1, 0):
        with pytest.raises(NotFoundError):
            pool.put_dataset_rows(number, [])
    for wrong in (None, "1", True, 2**70):
        with pytest.raises(InvalidRequestError):
            pool.put_dataset_rows(wrong, [])
    pool.put_dataset_rows(building, made[2:3])
    with pytest.raises(ConflictError, match="3 rows are there, the manifest counts 5"):
        pool.freeze_dataset(building, manifest("math", 1, 5))
    for bad in (manifest("code", 1, 3), manifest("math", 1, 3, version="math@1"), manifest("math", 1, 3, digest="x")):
        with pytest.raises(InvalidRequestError):
            pool.freeze_dataset(building, bad)
    assert pool.freeze_dataset(building, manifest("math", 1, 3)).rows == 3
    for name in ("", "a@b", "-a", "a" * 101, "ä", None):
        with pytest.raises(InvalidRequestError):
            pool.begin_dataset(name)


def test_rows_hold_their_trajectories_until_the_version_goes(pool, made, clock):
    building = pool.begin_dataset("math")
    pool.put_dataset_rows(building, made[:3])
    assert held(pool) == 3
    assert [pin.owner for pin in pool.pins(trajectory_id="a")] == [f"math@building.{building}"]
    assert pool.unpin("dataset", f"math@building.{building}") == 0
    frozen = pool.freeze_dataset(building, manifest("math", 1, 3))
    other = pool.begin_dataset("math")
    pool.put_dataset_rows(other, made[:1])
    pool.pin("dataset", "by-hand", ["b"])
    assert [(pin.owner, pin.trajectory_id) for pin in pool.pins(limit=4)] == [
        ("by-hand", "b"),
        (frozen.version, "a"),
        (frozen.version, "b"),
        (frozen.version, "c"),
    ]
    assert [pin.trajectory_id for pin in pool.pins(owner=frozen.version)] == ["a", "b", "c"]
    assert pool.pins(owner_kind="other") == []
    done = pool.collect(Retention(max_steps=0), include_waiting=True)
    assert (done.trajectories, done.kept_pinned, done.datasets) == (2, 3, 0)
    assert pool.dataset_rows("math") == made[:3]
    pool.drop_building(other)
    pool.drop_building(other)
    before = pool.stats().last_event
    assert pool.delete_dataset(frozen.version) == frozen
    assert [event.kind for event in pool.events(before)] == ["dataset.deleted"]
    with pytest.raises(NotFoundError):
        pool.delete_dataset(frozen.version)
    assert (pool.list_datasets().items, pool.datasets_of("a")) == ([], [])
    assert held(pool) == 1
    assert pool.get_trajectory("a").step_count == 2
    assert pool.check() == []


def test_what_was_broken_off_goes_a_day_later(pool, made, clock):
    freeze(pool, made[:1])
    old = pool.begin_dataset("math")
    pool.put_dataset_rows(old, made[:3])
    clock.now += DAY - 1
    young = pool.begin_dataset("math")
    pool.put_dataset_rows(young, made[3:4] and [row(0, "d", [])])
    assert pool.collect().datasets == 0
    clock.now += 1
    assert pool.collect(dry_run=True).datasets == 1
    assert pool.collect().datasets == 1
    assert held(pool) == 2
    with pytest.raises(NotFoundError):
        pool.freeze_dataset(old, manifest("math", 2, 3))
    assert pool.freeze_dataset(young, manifest("math", 2, 1)).rows == 1
    assert pool.check() == []


def test_a_deletion_on_request_leaves_ids_and_digests(pool, made):
    steps = [step.step_id for step in made[1].steps]
    made[0].feedback.append(
        Feedback(kind="comparison", feedback_id="g", trajectory_id="a", other_id="b", comment="b lies", value=2)
    )
    made[2].feedback.append(
        Feedback(kind="comparison", feedback_id="h", step_id=made[2].steps[0].step_id, other_id=steps[1], comment="too")
    )
    frozen = freeze(pool, made)
    building = pool.begin_dataset("code")
    pool.put_dataset_rows(building, [row(0, "b", steps)])
    other = pool.begin_dataset("code")
    pool.put_dataset_rows(other, [row(0, "a", [])])
    pool.delete_trajectories(["b"], "asked")
    rows = pool.dataset_rows("math")
    left = DatasetRow(
        position=1,
        trajectory_id="b",
        digest=made[1].digest,
        split="train",
        task_key=digested_task("task"),
        cluster="b",
        steps=[FrozenStep(step.step_id, step.digest) for step in made[1].steps],
    )
    assert rows[1] == left
    assert rows[3:] == made[3:]
    assert [(said.feedback_id, said.other_id, said.comment, said.value) for said in rows[0].feedback[1:]] == [
        ("g", "b", None, None)
    ]
    assert [(said.feedback_id, said.other_id, said.comment) for said in rows[2].feedback[1:]] == [("h", steps[1], None)]
    assert [one.digest for one in rows] == [one.digest for one in made]
    assert pool.get_dataset("math") == frozen
    assert pool.datasets_of("b") == [frozen.version]
    assert [pin.trajectory_id for pin in pool.pins(owner=frozen.version)] == ["a", "c", "d", "e"]
    with pytest.raises(NotFoundError):
        pool.freeze_dataset(building, manifest("code", 2, 1))
    assert pool.freeze_dataset(other, manifest("code", 2, 1)).rows == 1
    with pytest.raises(NotFoundError):
        pool.put_dataset_rows(pool.begin_dataset("more"), [row(0, "b", steps)])
    assert pool.check() == []
