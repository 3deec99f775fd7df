"""trajectories, reward and pool: on a pool's file and on a server."""

import json

import pytest

from agentworld.factory import open_pool
from agentworld.records import Message
from tests.api.serving import Serving


@pytest.fixture
def pool(tmp_path):
    return f"sqlite:///{tmp_path}/pool.db"


@pytest.fixture(params=["file", "server"])
def where(request, pool):
    """The options that name a pool with two trajectories, and a way to look into it."""
    with open_pool(pool) as opened:
        fill(opened)
        if request.param == "file":
            yield ("--pool", pool)
            return
    # Closing the server closes the pool too.
    with Serving(open_pool(pool)) as server:
        yield ("--url", server.url)


def fill(opened):
    with opened.trajectory(task={"task_set": "sums", "task_id": 7}, group="g", agent="loop") as first:
        said = {"prompt_messages": [Message(role="user", content="2+2?\x1b[31m")]}
        one = first.step(
            step_id="s1",
            prompt_ids=[1, 2],
            response_ids=[3],
            response_message={"role": "assistant", "content": "4"},
            **said,
        )
        first.reward(1.0)
    with opened.trajectory(trajectory_id="t2"):
        pass
    assert one.outcome == "stored"


def listed(cli, *arguments):
    code, out, err = cli("trajectories", "list", "--json", *arguments)
    assert code == 0, err
    return [json.loads(line) for line in out.splitlines()]


def test_list(cli, where):
    newest_first = listed(cli, *where)
    assert newest_first[0]["trajectory_id"] == "t2"
    assert listed(cli, *where, "--oldest") == newest_first[::-1]
    assert [each["reward"] for each in listed(cli, *where, "--where", "reward >= 1")] == [1.0]
    assert [each["agent"] for each in listed(cli, *where, "--group", "g")] == ["loop"]
    assert listed(cli, *where, "--channel", "val") == []


def test_list_as_a_table(cli, where):
    code, out, _ = cli("trajectories", "list", *where)
    assert code == 0
    rows = out.splitlines()
    assert rows[0].split()[:2] == ["trajectory", "status"]
    assert "sums 7" in rows[3]
    assert rows[2].split()[:2] == ["t2", "finished"]
    code, out, err = cli("trajectories", "list", *where, "--limit", "1")
    assert len(out.splitlines()) == 3
    assert "more" in err
    assert cli("trajectories", "list", *where, "--channel", "val")[1] == "No trajectories match.\n"


def test_show(cli, where):
    trajectory_id = listed(cli, *where, "--group", "g")[0]["trajectory_id"]
    code, out, _ = cli("trajectories", "show", trajectory_id, *where)
    assert code == 0
    assert "rewards     reward 1" in out
    assert "<gen> [4]" in out
    assert "s1" in out
    # Stored text is data: no terminal obeys it.
    assert "\x1b" not in out
    records = [
        json.loads(line) for line in cli("trajectories", "show", trajectory_id, *where, "--json")[1].splitlines()
    ]
    assert [record.get("step_id") for record in records] == [None, "s1"]


def test_reward_set(cli, where, refused):
    trajectory_id = listed(cli, *where, "--group", "g")[0]["trajectory_id"]
    assert cli("reward", "set", trajectory_id, "-0.5", "--name", "style", *where)[0] == 0
    assert cli("reward", "set", trajectory_id, "0.25", "--step", "s1", *where)[0] == 0
    assert "so already" in cli("reward", "set", trajectory_id, "0.25", "--step", "s1", *where)[1]
    assert listed(cli, *where, "--group", "g")[0]["rewards"] == {"reward": 1.0, "style": -0.5}
    assert "is not of trajectory t2" in refused("reward", "set", "t2", "1", "--step", "s1", *where)
    assert "no trajectory" in refused("reward", "set", "none", "1", *where)
    assert "finite" in refused("reward", "set", "t2", "nan", *where)


def test_pool_stats(cli, where):
    code, out, _ = cli("pool", "stats", "--json", *where)
    assert code == 0
    counters = json.loads(out)
    assert (counters["steps"], counters["trajectories"]) == (1, {"finished": 2})
    assert "tokens stored" in cli("pool", "stats", *where)[1]


def test_pool_migrate(cli, pool, refused):
    assert "There is no pool" in refused("pool", "migrate", "--pool", pool)
    open_pool(pool).close()
    assert cli("pool", "migrate", "--pool", pool)[0] == 0


def test_what_is_not_there_is_said(refused, cli, where, tmp_path):
    assert "no trajectory 'none'" in refused("trajectories", "show", "none", *where)
    assert "Did you mean reward?" in refused("trajectories", "list", "--where", "rewrd > 1", *where)
    assert "There is no pool at" in refused("trajectories", "list", "--pool", f"sqlite:///{tmp_path}/typo.db")
    assert not (tmp_path / "typo.db").exists()
    assert "exclude each other" in refused("trajectories", "list", "--pool", "memory://", "--url", "http://127.0.0.1:1")
    assert "not the address" in refused("trajectories", "list", "--url", "nonsense")
