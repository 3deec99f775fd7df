"""`agentworld dataset` on a pool and on a server."""

import json

import pytest

from agentworld.factory import open_pool
from agentworld.pool import open_store
from agentworld.records import Feedback, NewTrajectory, Reward, Step
from tests.api.serving import Serving

HOSTILE = "\x1b[31m\x07\u202e"


def fill(pool, numbers):
    """Trajectories, two of each task, with texts that terminals would obey."""
    for number in numbers:
        name = f"t{number}"
        task = {"task_id": number // 2, "task_set": f"sums{HOSTILE}"}
        pool.create_trajectory(NewTrajectory(trajectory_id=name, task=task, metadata={"import": {"file": HOSTILE}}))
        fields = {"prompt_ids": [1, number], "response_ids": [2], "token_source": "submitted", "model": f"m{HOSTILE}"}
        pool.append_steps([Step(step_id=f"s{number}", trajectory_id=name, **fields)])
        pool.complete_trajectory(name, "finished", number / 10)


class Place:
    """The options that name a filled pool, and the pool itself."""

    def __init__(self, options, pool):
        self.options, self.pool = options, pool


@pytest.fixture(params=["pool", "url"])
def place(request, tmp_path):
    """A filled pool on SQLite, named itself or by a server on it."""
    url = f"sqlite:///{tmp_path}/pool.db"
    with open_pool(url) as opened:
        fill(opened, range(10))
        if request.param == "pool":
            yield Place(("--pool", url), opened)
        else:
            with Serving(open_store(url)) as server:
                yield Place(("--url", server.url), opened)


def words(out):
    return [line.split() for line in out.splitlines()]


def is_plain(out):
    return all(character.isprintable() or character == "\n" for character in out)


def made(cli, place, *options, name="d"):
    """The version that a command makes."""
    code, out, err = cli("dataset", "create", name, *options, *place.options)
    assert code == 0, err
    version = out.splitlines()[-1]
    assert version.startswith(f"{name}@")
    return version


def test_a_version_is_made_listed_and_shown(cli, place):
    options = ("--where", "reward >= 0.2", "--split", "task", "--note", f"for {HOSTILE}", "--by", "ann")
    code, out, err = cli("dataset", "create", "d", *options, *place.options)
    assert code == 0, err
    assert ["train", "6", "75.0%", "90.0%", "6", "6"] in words(out)
    assert ["test", "2", "25.0%", "10.0%", "2", "2"] in words(out)
    assert "split test has 2 of 8 rows, 1 were asked for" in err
    version = out.splitlines()[-1]
    assert made(cli, place, *options[:4]) == version
    assert made(cli, place, "--where", "reward >= 0.2", "--split", "task", "--fractions", "a=0.5,b=0.5") != version
    code, out, _ = cli("dataset", "list", *place.options)
    assert (code, len(out.splitlines())) == (0, 4)
    assert version in out
    assert is_plain(out)
    listed = [json.loads(line) for line in cli("dataset", "list", "d", "--json", *place.options)[1].splitlines()]
    assert listed[-1]["version"] == version
    assert "no version of other" in cli("dataset", "list", "other", *place.options)[1]
    code, out, _ = cli("dataset", "show", version[:8], "--rows", "3", *place.options)
    assert (code, is_plain(out)) == (0, True)
    assert ["where", "reward", ">=", "0.2"] in words(out)
    assert ["together", "by", "task,", "and", "texts", "that", "are", "0.8", "alike"] in words(out)
    shown = [(line[0], line[2], line[4]) for line in words(out)[-3:]]
    assert shown == [("0", "t2", "0.2"), ("1", "t3", "0.3"), ("2", "t4", "0.4")]
    assert json.loads(cli("dataset", "show", version, "--json", *place.options)[1])["created_by"] == "ann"
    rows = cli("dataset", "show", version, "--rows", "500", "--split", "test", "--json", *place.options)[1]
    assert {json.loads(row)["split"] for row in rows.splitlines()} == {"test"}


def test_versions_are_compared_and_verified(cli, place):
    first = made(cli, place, "--where", "reward < 0.5")
    assert cli("dataset", "verify", first, *place.options)[:2] == (
        0,
        f"{first}\n        5  ok\nAll 5 rows with 5 steps are what was frozen.\n",
    )
    place.pool.add_rewards([Reward(value=0.3, trajectory_id="t1")])
    place.pool.add_feedback([Feedback(kind="label", trajectory_id="t2", name="x", value=1)])
    second = made(cli, place, "--where", "reward > 0.1", "--parent", first, name="e")
    code, out, _ = cli("dataset", "diff", first, second, "--samples", "2", *place.options)
    assert code == 0
    assert words(out)[:7] == [
        [first], [second], [], ["5", "added"], ["1", "removed"],
        ["2", "changed", "cluster", "1,", "feedback", "1,", "labels", "1,", "rewards", "1"], ["2", "same"],
    ]  # fmt: skip
    assert ["removed", "t0", "train"] in words(out)
    found = json.loads(cli("dataset", "diff", first, second, "--json", *place.options)[1])
    assert (found["added"], found["removed"], found["changed"], found["same"]) == (5, 1, 2, 2)
    place.pool.delete_trajectories(["t3"], f"asked {HOSTILE}")
    code, out, _ = cli("dataset", "verify", first, *place.options)
    assert (code, is_plain(out)) == (1, True)
    assert ["1", "deleted", "on", "request"] in words(out)
    assert ["3", "train", "t3", "deleted", "asked"] in [line[:5] for line in words(out)]
    assert cli("dataset", "verify", first, "--allow-deleted", *place.options)[0] == 0
    code, out, _ = cli("dataset", "verify", first, "--json", "--problems", "0", *place.options)
    assert (code, json.loads(out)["deleted"], json.loads(out)["problems"]) == (1, 1, [])


def test_a_row_is_traced_by_its_trajectory_its_step_and_its_place_in_a_file(cli, refused, place, tmp_path):
    version = made(cli, place)
    for target in ("t4", "s4"):
        code, out, _ = cli("dataset", "trace", version, target, *place.options)
        assert (code, is_plain(out)) == (0, True)
        assert ["row", "4,", "of", "split", "train"] in words(out)
        assert ["trajectory", "reward", "0.4", "complete"] in [line[:4] for line in words(out)]
        assert words(out)[-1][0] == "s4"
    file = tmp_path / "rows.jsonl"
    about = {"version": version, "trajectory_id": "t7", "step_ids": ["s7"]}
    file.write_text("{}\n" + json.dumps({"agentworld": about}) + "\n")
    found = json.loads(cli("dataset", "trace", "--file", file, "--row", "1", "--json", *place.options)[1])
    assert (found["trajectory_id"], found["imported"]) == ("t7", {"file": HOSTILE})
    assert "no column 'agentworld'" in refused("dataset", "trace", "--file", file, *place.options)
    assert "has no trajectory and no step 'none'" in refused("dataset", "trace", version, "none", *place.options)
    assert "no version 'nothing'" in refused("dataset", "trace", "nothing", "t4", *place.options)
    assert "Give VERSION and ID" in refused("dataset", "trace", version, *place.options, code=2)
    place.pool.delete_trajectories(["t4"], "asked")
    assert "deleted on request" in cli("dataset", "trace", version, "t4", *place.options)[1]


def test_a_version_is_deleted_by_its_whole_name(cli, refused, place):
    version = made(cli, place)
    assert "Give --yes" in refused("dataset", "delete", version, *place.options, code=2)
    assert "NAME@DIGEST" in refused("dataset", "delete", "d", "--yes", *place.options)
    assert cli("dataset", "delete", version, "--yes", *place.options)[:2] == (0, f"Deleted {version}\n")
    assert "There are no versions." in cli("dataset", "list", *place.options)[1]
    assert "no version 'd'" in refused("dataset", "show", "d", *place.options)


@pytest.mark.parametrize(
    ("options", "says", "code"),
    [
        (("--unit", "group"), "'group' is none of trajectory, step (at --unit)", 2),
        (("--split", "user"), "'user' is none of task, group, trajectory (at --split)", 2),
        (("--fractions", "train"), "'train' gives no split its share", 2),
        (("--fractions", "train=a,test=b"), "'a' is no number", 2),
        (("--fractions", "train=0.5"), "add up to 0.5", 1),
        (("--near-duplicates", "some"), "'some' is no number", 2),
        (("--near-duplicates", "2"), "over 0 and at most 1", 1),
        (("--where", "rewrd > 1"), "reward", 1),
        (("--where", "reward > 1"), "`where` holds for no trajectories", 1),
        (("--channel", "val"), "no trajectories in the channel 'val'", 1),
        (("--parent", "none"), "no version 'none'", 1),
        (("--by", " "), "Say who you are", 2),
    ],
)
def test_what_cannot_be_made_is_refused(refused, tmp_path, options, says, code):
    url = f"sqlite:///{tmp_path}/pool.db"
    with open_pool(url) as opened:
        fill(opened, range(1))
    assert says in refused("dataset", "create", "d", *options, "--pool", url, code=code)


def test_all_channels_steps_and_what_has_no_reward_can_be_taken(cli, tmp_path):
    url = f"sqlite:///{tmp_path}/pool.db"
    with open_pool(url) as opened:
        fill(opened, range(2))
        opened.append_steps([Step(step_id="v", trajectory_id="v", channel="val", prompt_ids=[1], response_ids=[2])])
        opened.complete_trajectory("v", "finished")
        options = ("--unit", "step", "--all-channels", "--unrewarded", "--near-duplicates", "none", "--json")
        code, out, _ = cli("dataset", "create", "d", *options, "--where", "response_length == 1", "--pool", url)
        manifest = json.loads(out)
        assert (code, manifest["rows"], manifest["steps"]) == (0, 3, 3)
        assert manifest["selection"]["splits"]["near_duplicates"] is None
        assert [row.trajectory_id for row in opened.dataset_rows("d")] == ["t0", "t1", "v"]
