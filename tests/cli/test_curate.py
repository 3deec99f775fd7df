"""`agentworld curate`: policies, decisions by hand, and why things stand as they do, on a pool and on a server."""

import json

import pytest

from agentworld.curation.policies import read_policy
from agentworld.errors import ConfigError
from agentworld.factory import open_pool
from agentworld.pool import open_store
from agentworld.records import BatchSpec, CurationPolicy, Evaluation, NewTrajectory, Step
from tests.api.serving import Serving

HOSTILE = "\x1b[31m\x07\u202e"
POLICY = """
name = "strict"
rules = [
  "when reward < 0.2 then exclude 'low'",
  "when reward < 0.6 then review 'middling' 0.8",
  "steps when finish_reason == 'length' then exclude 'cut'",
  "when has reward then weight 2",
]
"""


def fill(pool):
    """Five trajectories with rewards from 0 to 1; the last one's step was cut."""
    for number in range(5):
        name = f"t{number}"
        pool.create_trajectory(NewTrajectory(trajectory_id=name))
        finish = "length" if number == 4 else "stop"
        fields = {"prompt_ids": [1], "response_ids": [2], "token_source": "submitted", "finish_reason": finish}
        pool.append_steps([Step(step_id=f"s{number}", trajectory_id=name, **fields)])
        pool.complete_trajectory(name, "finished", number / 4)
    pool.create_trajectory(NewTrajectory(trajectory_id="t5", channel="other"))
    pool.complete_trajectory("t5", "finished")
    digests = {"fingerprint": b"f" * 16, "content": b"c" * 16}
    failed = {"state": "failed", "error": f"{HOSTILE} timed out \ud800", **digests}
    pool.put_evaluations([Evaluation(evaluator=f"judge{HOSTILE}", target="trajectory", target_id="t0", **failed)])


@pytest.fixture(params=["pool", "url"])
def place(request, tmp_path):
    """The options that name a filled pool on SQLite: the pool itself, or a server on it."""
    url = f"sqlite:///{tmp_path}/pool.db"
    with open_pool(url) as opened:
        fill(opened)
    if request.param == "pool":
        yield ("--pool", url)
    else:
        with Serving(open_store(url)) as server:
            yield ("--url", server.url)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "policy.toml"
    path.write_text(POLICY)
    return path


def columns(line):
    return [cell for cell in line.replace("  ", "\t").split("\t") if cell.strip()]


def test_a_policy_is_tried_then_put_in_force_shown_and_taken_away(cli, refused, place, file):
    code, out, _ = cli("curate", "policy", "set", file, "--dry-run", *place)
    assert code == 0
    lines = [[cell.strip() for cell in columns(line)] for line in out.splitlines()]
    assert ["1", "when reward < 0.2 then exclude 'low'", "1", "t0"] in lines
    assert ["2", "when reward < 0.6 then review 'middling' 0.8", "2", "t1, t2"] in [
        [*line[:3], ", ".join(sorted(line[3].split(", ")))] for line in lines if len(line) == 4
    ]
    assert ["3", "steps when finish_reason == 'length' then exclude 'cut'", "1", "s4"] in lines
    assert "Looked at 5 trajectories and 5 steps." in out
    assert ["3", "ready -> excluded"] in lines
    assert "No policy is in force." in cli("curate", "policy", "show", *place)[1]
    assert "Give --yes" in refused("curate", "policy", "set", file, *place, code=2)
    code, out, err = cli("curate", "policy", "set", file, "--yes", "--by", "ann", *place)
    assert code == 0, err
    assert "3  ready -> excluded" in out
    assert "is in force for train" in out
    out = cli("curate", "policy", "show", *place)[1]
    for text in ("strict (", "says ann", "default  ready", "3  steps when finish_reason == 'length'"):
        assert text in out
    assert "pending" not in out
    code, out, _ = cli("curate", "policy", "set", file, "--yes", *place)
    assert "No trajectory would change its readiness." in out
    assert "Give --yes" in refused("curate", "policy", "clear", *place, code=2)
    assert "has no policy any more" in cli("curate", "policy", "clear", "--yes", *place)[1]
    assert "and had none" in cli("curate", "policy", "clear", "--yes", *place)[1]
    out = cli("curate", "policy", "history", *place)[1]
    assert "strict" in out
    assert "in force" not in out


def test_what_a_policy_was_tried_on_is_counted_in_words(cli, place, file):
    out = cli("curate", "policy", "set", file, "--dry-run", "--latest", "1", *place)[1]
    assert "Looked at 1 trajectory and 1 step, the latest only." in out


def test_json_of_policies(cli, place, file):
    preview = json.loads(cli("curate", "policy", "set", file, "--dry-run", "--json", "--latest", "2", *place)[1])
    assert (preview["trajectories"], preview["whole"], preview["by_rule"]["4"]) == (2, False, 2)
    active = json.loads(cli("curate", "policy", "set", file, "--yes", "--json", "--by", "ann", *place)[1])
    assert (active["version"], active["source"], active["pending"]) == (preview["version"], "ann", 0)
    assert json.loads(cli("curate", "policy", "show", "--json", *place)[1]) == [active]
    assert json.loads(cli("curate", "policy", "history", "--json", "--limit", "1", *place)[1]) == active


def test_explain_says_what_is_missing(cli, place):
    assert cli("curate", "exclude", "s4", "bad step", *place)[0] == 0
    out = cli("curate", "explain", "t4", *place)[1]
    assert "readiness   ready" in out
    assert "steps       1 of 1 are excluded, such as s4: manual: bad step; nothing of it is left to serve" in out
    out = cli("curate", "explain", "t5", *place)[1]
    assert "readiness   complete\nbecause     it has no primary reward yet" in out
    assert "because" not in cli("curate", "explain", "t3", *place)[1]


def test_explain_says_which_rule_decided(cli, refused, place, file):
    cli("curate", "policy", "set", file, "--yes", *place)
    code, out, _ = cli("curate", "explain", "t0", *place)
    assert code == 0
    for text in (
        "readiness   excluded",
        "because     rule: low",
        "decided by  rule 1: when reward < 0.2 then exclude 'low'",
        "yes, decides",
        "not read",
        "timed out",
    ):
        assert text in out
    assert not {"\x1b", "\x07", "\u202e"} & set(out)
    assert "\\x1b[31m\\x07\\u202e timed out \\ud800" in out
    out = cli("curate", "explain", "s4", *place)[1]
    assert "step        s4" in out
    assert "decided by  rule 3: steps when" in out
    found = json.loads(cli("curate", "explain", "t0", "--json", *place)[1])
    assert (found["readiness"], found["reasons"]) == ("excluded", ["rule: low"])
    assert "no trajectory and no step 'none'" in refused("curate", "explain", "none", *place)


def test_what_no_rule_decides_goes_by_the_default(cli, place, tmp_path):
    path = tmp_path / "default.toml"
    path.write_text('default = "exclude"\nrules = ["when reward == 1 then ready"]\n')
    cli("curate", "policy", "set", path, "--yes", *place)
    assert "decided by  the policy's default: exclude" in cli("curate", "explain", "t1", *place)[1]
    assert "decided by  rule 1: when reward == 1 then ready" in cli("curate", "explain", "t4", *place)[1]


def test_a_person_excludes_includes_and_takes_it_back(cli, refused, place, file):
    cli("curate", "policy", "set", file, "--yes", *place)
    code, out, _ = cli("curate", "exclude", "t3", f"odd{chr(233)}", "--by", "ann", *place)
    assert (code, out) == (0, f"trajectory t3 is excluded: manual: odd{chr(233)}\n")
    assert cli("curate", "include", "t0", "--by", "ann", *place)[1] == "trajectory t0 is ready\n"
    out = cli("curate", "explain", "t0", *place)[1]
    assert "decided by  ann, by hand: ready" in out
    assert cli("curate", "exclude", "s3", "cut short", *place)[1].startswith("step s3 is excluded: ")
    assert cli("curate", "undo", "t0", *place)[1] == "trajectory t0 is excluded: rule: low\n"
    assert "(nothing has changed)" in cli("curate", "undo", "t0", *place)[1]
    assert cli("curate", "undo", "t3", *place)[1].startswith("trajectory t3 is ")
    assert "one line" in refused("curate", "exclude", "t3", HOSTILE, *place)
    assert "the name is empty" in refused("curate", "undo", "t3", "--by", " ", *place, code=2)
    assert "no trajectory and no step" in refused("curate", "exclude", "none", "x", *place)


def test_what_is_decided_by_hand_is_what_the_next_batch_holds(cli, tmp_path):
    url = f"sqlite:///{tmp_path}/pool.db"
    spec = BatchSpec(unit="trajectory", size=10, min_size=1)
    with open_pool(url) as opened:
        fill(opened)
        for name in ("t1", "t2", "s4"):
            assert cli("curate", "exclude", name, "no", "--pool", url)[0] == 0
        assert sorted(item.key for item in opened.lease(spec, "c").items) == ["t0", "t3"]
        cli("curate", "undo", "t2", "--pool", url)
        assert [item.key for item in opened.lease(spec, "c").items] == ["t2"]


def test_the_user_of_the_system_is_named_by_default(cli, refused, tmp_path, monkeypatch):
    url = f"sqlite:///{tmp_path}/pool.db"
    with open_pool(url) as opened:
        fill(opened)
        monkeypatch.setattr("getpass.getuser", lambda: "sysuser")
        cli("curate", "exclude", "t1", "no", "--pool", url)
        assert [one.source for one in opened.decisions(trajectory_id="t1")] == ["sysuser"]

        def nobody():
            raise KeyError("uid")

        monkeypatch.setattr("getpass.getuser", nobody)
        assert "--by NAME" in refused("curate", "undo", "t1", "--pool", url, code=2)


def test_a_change_asks_first(cli, place, file, monkeypatch):
    asked = []
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)

    def confirm(text, **_):
        asked.append(text)
        raise __import__("typer").Abort

    monkeypatch.setattr("typer.confirm", confirm)
    code, out, _ = cli("curate", "policy", "set", file, *place)
    assert code == 130
    assert "3  ready -> excluded" in out
    assert cli("curate", "policy", "clear", *place)[0] == 130
    assert asked == ["Put strict in force for the channel train?", "Serve train without any policy?"]
    assert "No policy" in cli("curate", "policy", "show", *place)[1]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('nme = "x"\nrules = []', "unknown field `nme`. Did you mean name?"),
        ("rules = 3", "Expected `array`"),
        ("rules = [1]", "Expected `str`"),
        ('rules = []\ndefault = "maybe"', "Use exclude, ready, review"),
        ('name = "x"', "missing required field `rules`"),
        ("rules = [", "not valid TOML"),
    ],
)
def test_a_file_that_is_no_policy_is_refused(refused, tmp_path, text, said):
    path = tmp_path / "wrong.toml"
    path.write_text(text)
    assert said in refused("curate", "policy", "set", path, "--yes")


def test_a_rule_that_cannot_be_read_is_named_with_its_position(refused, place, tmp_path):
    path = tmp_path / "wrong.toml"
    path.write_text('rules = ["when has reward then ready", "when rewrd < 1 then ready"]')
    line = refused("curate", "policy", "set", path, "--dry-run", *place)
    assert "rule 2: " in line
    assert "position 5" in line
    assert "(at rules[1]). Did you mean reward?" in line


def test_a_policy_is_read_from_a_file_in_python(tmp_path, file):
    found = read_policy(file)
    assert type(found) is CurationPolicy
    assert (found.name, found.channel, found.default, len(found.rules)) == ("strict", "train", "ready", 4)
    with pytest.raises(ConfigError, match="does not exist"):
        read_policy(tmp_path / "none.toml")


def test_rules_that_can_never_hold_are_told(cli, place, tmp_path):
    """A rule that was meant to keep something back and does not is the worst that a policy can have."""
    path = tmp_path / "doubtful.toml"
    sure = ["when label.check.unrewarded then exclude 'a'", "when has label.check.loop then exclude 'b'"]
    asked = [
        "when not (label.check.loop or label.good) then exclude 'c'",
        "steps when has label.check.secrt then exclude 'd'",
    ]
    path.write_text(f"name = 'p'\nrules = {json.dumps([*sure, *asked])}\n")
    code, _, err = cli("curate", "policy", "set", path, "--dry-run", *place)
    assert (code, err.splitlines()) == (
        0,
        [
            "agentworld: rule 3: label.check.loop alone holds where it is true, and it is how often the cycle came in a"
            " row: write has label.check.loop",
            "agentworld: rule 4: no check is called 'secrt' here; did you mean secret?",
        ],
    )


def test_a_channel_that_nothing_is_in_is_told(cli, place, tmp_path):
    path = tmp_path / "misspelt.toml"
    path.write_text('name = "strict"\nchannel = "trian"\nrules = ["when reward < 0.2 then exclude \'low\'"]\n')
    code, _, err = cli("curate", "policy", "set", path, "--dry-run", *place)
    assert (code, err) == (0, "agentworld: no trajectory is in channel 'trian'; the latest are in other, train\n")
