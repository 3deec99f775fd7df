"""`agentworld feedback` on a pool's file and on a server."""

import json
import re
import signal
import subprocess
import sys

import pytest

from agentworld.cli import feedback as commands
from agentworld.factory import open_pool
from agentworld.feedback.content import reply_digest
from agentworld.pool.sql import feedback
from agentworld.records import Feedback
from tests.api.serving import Serving
from tests.cli.conftest import _clean_environment, cli, refused

from .talks import Talk, asked, said

__all__ = ["_clean_environment", "cli", "refused"]


@pytest.fixture
def url(tmp_path):
    """A pool with a corrected step, rated branches, and a run that was left."""
    url = f"sqlite:///{tmp_path}/pool.db"
    with open_pool(url) as pool:
        talk = Talk(pool)
        prompt = [asked("a")]
        for reply in ("x", "y"):
            talk.sample(prompt, reply)
        talk.sample([*prompt, said("y"), asked("and?")], "five")
        talk.end("abandoned")
        pool.add_feedback(
            [
                Feedback(kind="correction", step_id="t-2", value="four", source="anna", comment="\x1b[31m"),
                *(
                    Feedback(kind="rating", name="good", step_id=step_id, value=value, source=source)
                    for step_id, source, value in (("t-0", "anna", 1), ("t-1", "anna", 3), ("t-1", "ben", 4))
                ),
                *(
                    Feedback(kind="label", name="ok", step_id="t-0", value=value, source=source)
                    for source, value in (("anna", "yes"), ("ben", "no"))
                ),
            ]
        )
    return url


def test_corrections_are_lines_of_json(cli, url, tmp_path):
    code, out, err = cli("feedback", "corrections", "--pool", url)
    row = json.loads(out)
    assert (code, row["chosen"][0]["content"], row["rejected"][0]["content"]) == (0, "four", "five")
    assert err == "agentworld: 1 correction\n"
    file = tmp_path / "targets.jsonl"
    code, out, err = cli("feedback", "corrections", "--as", "targets", "--out", file, "--pool", url)
    assert (code, out) == (0, "")
    assert json.loads(file.read_text())["messages"][-1] == {"role": "assistant", "content": "four"}
    assert [path.name for path in tmp_path.iterdir() if "targets" in path.name] == ["targets.jsonl"]
    assert cli("feedback", "corrections", "--where", "step_index == 0", "--pool", url)[1:] == (
        "", "agentworld: 0 corrections; left out: 1 missing\n")  # fmt: skip


def test_a_file_that_cannot_be_written_is_an_error_and_stays_as_it_was(cli, refused, url, tmp_path):
    assert "cannot be written" in refused(
        "feedback", "corrections", "--out", tmp_path / "no" / "x", "--pool", url, code=2
    )
    file = tmp_path / "old.jsonl"
    file.write_text("old")
    refused("feedback", "corrections", "--where", "nonsense ==", "--out", file, "--pool", url)
    assert file.read_text() == "old"


def test_corrections_go_into_the_pool(cli, refused, url):
    assert "1 of them new" in cli("feedback", "corrections", "--store", "--pool", url)[2]
    assert "0 of them new" in cli("feedback", "corrections", "--store", "--pool", url)[2]
    refused("feedback", "corrections", "--store", "--out", "x", "--pool", url, code=2)


def test_ratings_become_comparisons(cli, url):
    dry = cli("feedback", "pairs", "--name", "good", "--dry-run", "--pool", url)[1]
    assert dry.splitlines()[-1].split() == ["t-1", "t-0", "2.5"]
    assert cli("feedback", "list", "--kind", "comparison", "--json", "--pool", url)[1] == ""
    assert cli("feedback", "pairs", "--name", "good", "--margin", "3", "--pool", url)[1].startswith("0 ")
    assert cli("feedback", "pairs", "--name", "good", "--pool", url)[1].startswith("1 ")
    found = json.loads(cli("feedback", "list", "--kind", "comparison", "--json", "--pool", url)[1])
    assert (found["step_id"], found["other_id"], found["source"]) == ("t-1", "t-0", "ratings:good")


def test_implicit_signals(cli, url):
    only = ("feedback", "implicit", "--signal", "abandon", "--pool", url)
    assert cli(*only) == (0, "1 trajectory: 1 implicit:abandon\n", "")
    assert cli("feedback", "implicit", "--pool", url)[1] == "0 trajectories: nothing new\n"
    assert cli("feedback", "implicit", "--again", "--pool", url)[1] == "1 trajectory: 1 implicit:regenerate\n"


def test_it_follows_until_a_signal_comes(cli, url):
    command = [sys.executable, "-m", "agentworld", "feedback", "implicit", "--follow", "--pool", url]
    worker = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        with open_pool(url) as pool:
            for event in pool.follow(timeout=100):
                if event.kind == "label.set" and pool.get_trajectory("t").labels:
                    break
            else:
                raise AssertionError("nothing was derived")
        worker.send_signal(signal.SIGTERM)
        out, err = worker.communicate(timeout=100)
    finally:
        worker.kill()
        worker.wait()
    assert (worker.returncode, out) == (0, "1 trajectory: 1 implicit:abandon, 1 implicit:regenerate\n")
    assert err == "agentworld: stopped; the same command goes on\n"


def test_agreement_and_disagreements(cli, refused, url):
    code, out, _ = cli("feedback", "agreement", "--name", "ok", "--pool", url)
    assert code == 0
    assert "1 target, 1 judged by two or more, 1 of those with more than one value" in out
    assert "Cohen's kappa, anna and ben" in out
    found = json.loads(cli("feedback", "agreement", "--name", "good", "--kind", "rating", "--json", "--pool", url)[1])
    assert (found["annotators"], found["level"], found["compared"]) == ({"anna": 2, "ben": 1}, "interval", 1)
    assert "no number" in refused("feedback", "agreement", "--name", "ok", "--level", "ordinal", "--pool", url)
    assert "nobody" in cli("feedback", "agreement", "--name", "x", "--pool", url)[2]
    row = json.loads(cli("feedback", "disagreements", "--name", "ok", "--json", "--pool", url)[1])
    assert row == {"step_id": "t-0", "worth": 1.0, "reason": 'ok: "no" by 1, "yes" by 1'}
    code, out, err = cli("feedback", "disagreements", "--name", "ok", "--review", "--pool", url)
    assert (code, err) == (0, "agentworld: 1 review asked for or changed\n")
    assert "step t-0" in out
    with open_pool(url) as pool:
        assert [one.origin for one in pool.list_reviews().items] == ["disagreement"]


def test_what_needs_no_more_than_reading_works_on_a_server(cli, url):
    with Serving(open_pool(url)) as server:
        assert json.loads(cli("feedback", "corrections", "--url", server.url)[1])["step_id"] == "t-2"
        assert "Cohen's kappa" in cli("feedback", "agreement", "--name", "ok", "--url", server.url)[1]


def test_what_was_seen_is_told(cli, refused, url):
    for reply in ("five", "four"):
        content = reply_digest(said(reply))
        add = ("feedback", "add", "t", "rating", "--value", "1", "--step", "t-2", "--content", content)
        assert cli(*add, "--pool", url)[0] == 0
    assert "hex digits" in refused("feedback", "add", "t", "comment", "--comment", "x", "--content", "x", "--pool", url)
    lines = cli("feedback", "list", "--step", "t-2", "--kind", "rating", "--pool", url)[1].splitlines()
    assert [line.split()[-1] for line in lines if "rating" in line] == ["current", "outdated"]
    with Serving(open_pool(url)) as server:
        assert "outdated" in cli("feedback", "list", "--step", "t-2", "--url", server.url)[1]


def test_a_correction_is_the_text_that_was_typed(cli, url):
    assert cli("feedback", "add", "t", "correction", "--value", "4", "--source", "eve", "--pool", url)[0] == 0
    rows = [
        json.loads(line)
        for line in cli("feedback", "list", "--kind", "correction", "--json", "--pool", url)[1].splitlines()
    ]
    assert [row["value"] for row in rows if row["source"] == "eve"] == ["4"]


def test_what_is_given_has_an_id_that_is_printed(cli, url):
    add = ("feedback", "add", "t", "rating", "--value", "1", "--pool", url)
    feedback_id = cli(*add)[1].split()[1]
    rows = [json.loads(line) for line in cli("feedback", "list", "--json", "--pool", url)[1].splitlines()]
    assert rows[-1]["feedback_id"] == feedback_id
    assert cli(*add, "--id", feedback_id)[1] == f"rating {feedback_id} on trajectory t (it was there already)\n"


def test_unknown_names_and_sources_are_told_which_there_are(cli, url):
    for dry in ([], ["--dry-run"]):
        code, _, err = cli("feedback", "pairs", "--name", "nope", "--pool", url, *dry)
        assert (code, err) == (0, "agentworld: nobody has rated under the name 'nope'. There are good\n")
    for store in ([], ["--store"]):
        code, _, err = cli("feedback", "corrections", "--source", "nobody", "--pool", url, *store)
        assert (code, err.splitlines()[1:]) == (
            0, ["agentworld: nobody has corrected anything as 'nobody'. There are anna"])  # fmt: skip
    assert cli("feedback", "add", "t", "rating", "--value", "1", "--pool", url)[0] == 0
    agreement = ("feedback", "agreement", "--pool", url, "--kind", "rating", "--name")
    told = "agentworld: nobody has given a rating of the name 'nope'. There are good and 1 without a name\n"
    assert cli(*agreement, "nope") == (0, "", told)
    none = cli(*agreement, "good", "--where", "reward > 9")
    assert none == (0, "", "agentworld: no rating good is among what was asked for\n")
    assert "nobody" not in cli("feedback", "corrections", "--source", "anna", "--pool", url)[2]
    assert "nobody" not in cli("feedback", "pairs", "--name", "good", "--margin", "9", "--pool", url)[2]


def test_the_list_is_of_a_source_and_a_name(cli, url):
    listed = ("feedback", "list", "--json", "--pool", url)
    rows = [json.loads(line) for line in cli(*listed, "--source", "anna", "--name", "good")[1].splitlines()]
    assert [(row["step_id"], row["value"]) for row in rows] == [("t-0", 1), ("t-1", 3)]
    _, out, err = cli("feedback", "list", "--source", "anna", "--limit", "1", "--pool", url)
    assert len(out.splitlines()) == 3
    cursor = re.fullmatch(r"agentworld: The first 1; `--cursor (\w+)` goes on\n", err)[1]
    _, rest, err = cli(*listed, "--source", "anna", "--cursor", cursor)
    every = cli(*listed, "--source", "anna")[1].splitlines()
    assert (rest.splitlines(), err) == (every[1:], "")


def test_a_long_look_ends_and_says_where_it_goes_on(cli, url, monkeypatch):
    listed = ("feedback", "list", "--json", "--pool", url, "--source", "anna")
    every = cli(*listed)[1].splitlines()
    monkeypatch.setattr(feedback, "LOOKED_AT", 1)
    monkeypatch.setattr(commands, "MOST_PAGES", 2)
    found, cursor, calls = [], (), 0
    while calls == 0 or cursor:
        _, out, err = cli(*listed, *cursor)
        found += out.splitlines()
        cursor, calls = tuple(re.findall(r"--cursor \w+", err)[0].split()) if err else (), calls + 1
    assert found == every
    assert calls > 2
