"""trajectories, reward and pool: on a pool's file and on a server."""

import contextlib
import json
import os
import re
import sqlite3
import subprocess
import sys

import pytest

from agentworld.factory import open_pool
from agentworld.records import Exchange, Feedback, Message, NewTrajectory, Reward, Step, new_id
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
    assert "in 1 step\n" in out


def test_show_says_where_it_was_imported_from_and_has_its_labels(cli, pool):
    origin = {"format": "atif", "file": "runs/a.json\x1b", "place": "0", "digest": "0" * 32}
    with open_pool(pool) as opened:
        opened.create_trajectory(NewTrajectory(trajectory_id="from", metadata={"import": origin, "kept": True}))
        opened.append_steps([Step(step_id="from-0", trajectory_id="from", response_message=Message(role="assistant"))])
        opened.add_feedback(
            [
                Feedback(kind="label", name="exit", value="submitted", trajectory_id="from"),
                Feedback(kind="label", name="good", value=True, step_id="from-0"),
            ]
        )
    out = cli("trajectories", "show", "from", "--pool", pool)[1]
    assert "imported    as atif from runs/a.json" in out
    assert 'metadata    {"kept":true}' in out
    assert "labels      exit submitted" in out
    assert "good true" in out
    assert "\x1b" not in out


def test_show_says_who_gave_each_reward(cli, pool):
    with open_pool(pool) as opened:
        fill(opened)
        (step,) = opened.list_steps().items
        trajectory_id = step.trajectory_id
        opened.add_rewards([Reward(value=0.25, trajectory_id=trajectory_id, source="ada", details={"why": "so"})])
        opened.add_rewards([Reward(value=0.5, step_id="s1", name="style", source="judge-a")])
    out = cli("trajectories", "show", trajectory_id, "--pool", pool)[1]
    rows = [line.split() for line in out.splitlines()]
    assert ["reward", "0.25", "trajectory", "ada"] in [row[:4] for row in rows]
    assert ["style", "0.5", "step", "s1", "judge-a"] in [row[:5] for row in rows]
    head = json.loads(cli("trajectories", "show", trajectory_id, "--pool", pool, "--json")[1].splitlines()[0])
    assert [(one["name"], one["source"], one["details"]) for one in head["given"]][-2:] == [
        ("reward", "ada", {"why": "so"}),
        ("style", "judge-a", None),
    ]
    with Serving(open_pool(pool)) as server:
        records = cli("trajectories", "show", trajectory_id, "--url", server.url, "--json")[1].splitlines()
        assert json.loads(records[0])["given"] == head["given"]


def test_the_wide_list_has_the_channel(cli, where):
    rows = cli("trajectories", "list", *where, "--wide")[1].splitlines()
    assert (rows[0].split()[-1], rows[2].split()[-1]) == ("channel", "train")
    assert "channel" not in cli("trajectories", "list", *where)[1]


ON_TERMINAL = """
import fcntl, json, os, pty, struct, sys, termios
from agentworld.cli import invoke
from agentworld.cli import trajectories  # Once for all terminals.
told = []
for width, *arguments in json.loads(sys.argv[1]):
    pid, master = pty.fork()
    if pid == 0:
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
        code = invoke(arguments)
        sys.stdout.flush()
        os._exit(code)
    out = b""
    while True:
        try:
            piece = os.read(master, 65536)
        except OSError:
            break
        if not piece:
            break
        out += piece
    told.append((os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), out.decode()))
print(json.dumps(told))
"""


def at_terminals(*commands):
    """What commands print at terminals, without colours, line by line; each begins with how wide its terminal is."""
    environment = {**os.environ, "TERM": "xterm"}
    for name in ("COLUMNS", "FORCE_COLOR", "NO_COLOR"):
        environment.pop(name, None)
    command = [sys.executable, "-c", ON_TERMINAL, json.dumps(commands)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=150, check=True, env=environment)
    told = json.loads(done.stdout)
    assert [code for code, _ in told] == [0] * len(commands), told
    return [re.sub(r"\x1b\[[0-9;]*m", "", out).splitlines() for _, out in told]


LONG_ID = new_id("trj")


@pytest.fixture
def wide_pool(pool):
    with open_pool(pool) as opened:
        task = {"task_set": "capitals-of-the-world", "task_id": "x" * 60}
        with opened.trajectory(trajectory_id=LONG_ID, task=task, group="g" * 60, agent="a-loop") as run:
            run.step(prompt_ids=[1], response_ids=[2], policy_version=3)
            run.reward(0.25)
    return pool


def test_a_narrow_terminal_gets_fewer_columns_and_whole_ids_and_a_wide_one_all(wide_pool):
    listing = ("trajectories", "list", "--pool", wide_pool)
    lines, narrow, *wide = at_terminals((80, *listing), (30, *listing), (400, *listing), (80, *listing, "--wide"))
    assert lines[0].split() == ["trajectory", "status", "reward", "steps", "tokens", "agent"]
    assert lines[2].split() == [LONG_ID, "finished", "0.25", "1", "2", "a-loop"]
    assert "Left out for want of room: group, policy, task, created; --wide shows them." in lines[-1]
    # Even the few columns do not fit: then the lines are too long, not the ids cut.
    assert narrow[2].split()[0] == LONG_ID
    for lines, more in zip(wide, ([], ["channel"]), strict=True):
        assert lines[0].split()[-4 - len(more) :] == ["created", "task", "policy", "group", *more]
        assert "g" * 60 in lines[2].split()


def test_away_from_a_terminal_nothing_is_cut(cli, wide_pool):
    code, out, err = cli("trajectories", "list", "--pool", wide_pool)
    assert (code, err) == (0, "")
    assert len(out.splitlines()) == 3
    for whole in (LONG_ID, "x" * 60, "g" * 60):
        assert whole in out.splitlines()[2]


def failed_call(number, trajectory_id="t2"):
    error = {"code": "engine_unreachable", "status": 503, "message": f"no engine {number}\x1b", "hint": "Start it"}
    return Exchange(
        exchange_id=f"exc_{number}", trajectory_id=trajectory_id, dialect="chat", model="m", requested_model="m",
        messages=[Message(role="user", content="hello")], created_at=1_700_000_000.0 + number, error=error,
    )  # fmt: skip


def test_show_says_why_calls_failed(cli, pool):
    with open_pool(pool) as opened:
        fill(opened)
        for number in range(2):
            opened.append_exchange(failed_call(number))
    with Serving(open_pool(pool)) as server:
        for where in (("--pool", pool), ("--url", server.url)):
            code, out, err = cli("trajectories", "show", "t2", *where)
            assert (code, err) == (0, "")
            assert "2 calls failed:" in out
            assert re.search(r"503 +engine_unreachable +no engine 1\\x1b\. Start it", out)
            records = [json.loads(line) for line in cli("trajectories", "show", "t2", *where, "--json")[1].splitlines()]
            assert [record.get("exchange_id") for record in records] == [None, "exc_0", "exc_1"]
            assert records[2]["error"]["message"] == "no engine 1\x1b"


def test_show_of_many_failures_has_the_last(cli, pool):
    with open_pool(pool) as opened:
        fill(opened)
        for number in range(25):
            opened.append_exchange(failed_call(number))
    _, out, err = cli("trajectories", "show", "t2", "--pool", pool)
    assert "25 calls failed:" in out
    assert "no engine 24" in out
    assert "no engine 4" not in out
    assert "the last 20" in err


def test_show_of_a_trajectory_without_calls_says_so(cli, where):
    assert "No call of a model is on record." in cli("trajectories", "show", "t2", *where)[1]


def test_complete_ends_a_trajectory(cli, refused, pool):
    with open_pool(pool) as opened:
        for name in ("by-file", "by-server", "cut"):
            opened.append_steps([Step(step_id=name, trajectory_id=name, prompt_ids=[1], response_ids=[2])])
    ended = ("trajectories", "complete")
    assert cli(*ended, "by-file", "--reward", "-0.5", "--pool", pool)[:2] == (
        0,
        "by-file finished, 1 step, reward -0.5\n",
    )
    with Serving(open_pool(pool)) as server:
        where = ("--url", server.url)
        assert cli(*ended, "by-server", *where)[:2] == (0, "by-server finished, 1 step\n")
        assert cli(*ended, "cut", "--status", "abandoned", *where)[1].startswith("cut abandoned, 1 step; excluded: ")
        assert cli(*ended, "by-server", "--reward", "1", *where)[1] == "by-server finished, 1 step, reward 1\n"
        statuses = {one["trajectory_id"]: (one["status"], one["reward"]) for one in listed(cli, *where)}
        assert statuses == {
            "by-file": ("finished", -0.5),
            "by-server": ("finished", 1.0),
            "cut": ("abandoned", None),
        }
        assert "finished" in refused(*ended, "by-file", "--status", "failed", *where)
        assert "no trajectory 'none'" in refused(*ended, "none", *where)
    assert "finite" in refused(*ended, "by-file", "--reward", "nan", "--pool", pool, code=2)


def test_reward_set(cli, where, refused):
    trajectory_id = listed(cli, *where, "--group", "g")[0]["trajectory_id"]
    assert cli("reward", "set", trajectory_id, "-0.5", "--name", "style", *where)[0] == 0
    assert cli("reward", "set", trajectory_id, "0.25", "--step", "s1", *where)[0] == 0
    assert "so already" in cli("reward", "set", trajectory_id, "0.25", "--step", "s1", *where)[1]
    assert listed(cli, *where, "--group", "g")[0]["rewards"] == {"reward": 1.0, "style": -0.5}
    assert "is not of trajectory 't2'" in refused("reward", "set", "t2", "1", "--step", "s1", *where)
    assert "waits, as there is no trajectory later yet" in cli("reward", "set", "later", "1", *where)[1]
    assert "finite" in refused("reward", "set", "t2", "nan", *where, code=2)


def test_feedback(cli, where, refused):
    trajectory_id = listed(cli, *where, "--group", "g")[0]["trajectory_id"]
    label = ("feedback", "add", trajectory_id, "label", "--name", "quality", "--value", "good", "--id", "f1", *where)
    assert cli(*label)[0] == 0
    assert "was there already" in cli(*label)[1]
    assert cli("feedback", "add", trajectory_id, "rating", "--value", "4", "--step", "s1", *where)[0] == 0
    assert "waits" in cli("feedback", "add", "later", "comment", "--comment", "x\x1b", *where)[1]
    assert listed(cli, *where, "--where", "label.quality == 'good'")[0]["trajectory_id"] == trajectory_id
    _, out, _ = cli("feedback", "list", "--json", *where)
    assert [(one["kind"], one["value"]) for one in map(json.loads, out.splitlines())] == [
        ("label", "good"),
        ("rating", 4),
        ("comment", None),
    ]
    assert "step s1" in cli("feedback", "list", "--kind", "rating", *where)[1]
    assert "\\x1b" in cli("feedback", "list", "--trajectory", "later", *where)[1]
    assert "other_id" in refused("feedback", "add", trajectory_id, "comparison", *where)
    assert "step_id" in refused("feedback", "list", "--trajectory", "t", "--step", "s", *where)


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


READING = [("trajectories", "list"), ("trajectories", "show", "t"), ("pool", "stats"), ("pool", "migrate")]


@pytest.mark.parametrize("command", READING)
@pytest.mark.parametrize("made_by", ["touch", "sqlite"])
def test_reading_makes_no_pool_of_an_empty_file(refused, tmp_path, command, made_by):
    path = tmp_path / "empty.db"
    path.touch()
    if made_by == "sqlite":
        with contextlib.closing(sqlite3.connect(path)) as connection:
            connection.execute("VACUUM")
    before = path.read_bytes()
    assert "is empty, no pool" in refused(*command, "--pool", f"sqlite:///{path}")
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["empty.db"]


def test_reading_does_not_migrate(cli, refused, pool, tmp_path):
    open_pool(pool).close()
    path = tmp_path / "pool.db"
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '0000'")
    before = path.read_bytes()
    assert f"agentworld pool migrate --pool {pool}" in refused("trajectories", "list", "--pool", pool)
    assert path.read_bytes() == before


def test_a_file_of_something_else_is_left_alone(refused, tmp_path):
    path = tmp_path / "other.db"
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE mine (x)")
    before = path.read_bytes()
    assert "is a SQLite database, but no pool" in refused("pool", "stats", "--pool", f"sqlite:///{path}")
    assert path.read_bytes() == before


def test_a_pool_in_use_is_read(cli, pool):
    with open_pool(pool) as opened:
        fill(opened)
        assert len(listed(cli, "--pool", pool)) == 2


@pytest.mark.parametrize("option", ["--pool", "--url"])
def test_an_empty_option_is_an_error(refused, option):
    assert f"{option} is empty" in refused("trajectories", "list", option, "", code=2)


@pytest.mark.parametrize("url", ["mysql://127.0.0.1/db", "pool.db", "sqlite://pool.db"])
def test_a_url_that_is_no_pool_s_says_which_are(refused, url):
    line = refused("trajectories", "list", "--pool", url)
    assert "sqlite:///" in line or "Three slashes" in line


def test_what_is_not_there_is_said(refused, cli, where, tmp_path):
    assert "no trajectory 'none'" in refused("trajectories", "show", "none", *where)
    assert "Did you mean reward?" in refused("trajectories", "list", "--where", "rewrd > 1", *where)
    assert "There is no pool at" in refused("trajectories", "list", "--pool", f"sqlite:///{tmp_path}/typo.db")
    assert not (tmp_path / "typo.db").exists()
    both = ("--pool", "sqlite:///a.db", "--url", "http://127.0.0.1:1")
    assert "exclude each other" in refused("trajectories", "list", *both, code=2)
    assert "not the address" in refused("trajectories", "list", "--url", "nonsense")


def test_what_is_typed_wins_over_variables(cli, refused, where, monkeypatch):
    variable = {"--pool": "AGENTWORLD_URL", "--url": "AGENTWORLD_POOL"}[where[0]]
    monkeypatch.setenv(variable, "http://127.0.0.1:1" if variable.endswith("URL") else "sqlite:///none.db")
    assert listed(cli, *where)[0]["trajectory_id"] == "t2"
    monkeypatch.setenv("AGENTWORLD_POOL", "sqlite:///none.db")
    monkeypatch.setenv("AGENTWORLD_URL", "http://127.0.0.1:1")
    assert listed(cli, *where)[0]["trajectory_id"] == "t2"
    line = refused("trajectories", "list", code=2)
    assert "AGENTWORLD_POOL and AGENTWORLD_URL are both set" in line
    monkeypatch.delenv("AGENTWORLD_URL")
    assert "There is no pool at" in refused("trajectories", "list")


def test_a_query_is_explained_instead_of_answered(cli, refused, where):
    code, shown, _ = cli("trajectories", "list", "--where", "reward>=0.5 and meta.k==1", "--explain", *where)
    assert code == 0
    assert re.search(r"^where +reward >= 0.5 and metadata.k == 1$", shown, re.MULTILINE)
    assert re.search(r"^by an index +reward >= 0.5$", shown, re.MULTILINE)
    assert re.search(r"^row by row +metadata.k == 1$", shown, re.MULTILINE)
    assert re.search(r"^plan +by an index: reward >= 0.5 finds 1 rows$", shown, re.MULTILINE)
    found = json.loads(cli("trajectories", "list", "--where", "open", "--explain", "--json", *where)[1])
    assert (found["expression"], found["indexed"]) == ("open", ["open"])
    assert "--where" in refused("trajectories", "list", "--explain", *where, code=2)


def test_a_long_search_says_how_far_it_is(cli, pool, monkeypatch):
    from agentworld.pool.sql import reads

    with open_pool(pool) as opened:
        for number in range(7):
            with opened.trajectory(trajectory_id=f"t{number}", metadata={"k": number}):
                pass
    monkeypatch.setattr(reads, "SCAN_ROWS", 3)
    _, shown, err = cli("trajectories", "list", "--where", "meta.k == 0", "--json", "--pool", pool)
    assert json.loads(shown)["trajectory_id"] == "t0"
    assert err.splitlines() == [
        "Looked at 3 rows, found 0; looking on.",
        "Looked at 6 rows, found 0; looking on.",
    ]


def test_the_overview_lists_figures_by_name(cli, where):
    _, shown, _ = cli("pool", "stats", *where)
    assert re.search(r"^channels: train: trajectories +2 *$", shown, re.MULTILINE)
    assert re.search(r"^readiness: ready +1 *$", shown, re.MULTILINE)
