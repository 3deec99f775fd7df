"""`agentworld review`: reviews are handed out, shown, resolved and taken back, on a pool and on a server."""

import json

import pytest

from agentworld.factory import open_pool
from agentworld.pool import open_store
from agentworld.records import FunctionCall, Message, NewReview, NewTrajectory, Step, ToolCall
from tests.api.serving import Serving

HOSTILE = "\x1b[2J\x9b31m\u202e"


def fill(pool):
    call = ToolCall(id="c", function=FunctionCall(name=f"run{HOSTILE}", arguments='{"a": 1'))
    prompt = [Message(role="user", content=f"question {number}") for number in range(8)]
    reply = Message(role="assistant", content=f"{HOSTILE}answer\n[bold]x[/bold]", reasoning="hm", tool_calls=(call,))
    for name in ("a", "b", "empty"):
        pool.create_trajectory(NewTrajectory(trajectory_id=name))
        if name != "empty":
            pool.append_steps(
                [Step(step_id=f"s-{name}", trajectory_id=name, prompt_messages=prompt, response_message=reply)]
            )
        pool.complete_trajectory(name, "finished", 1.0)
    pool.add_reviews(
        [
            NewReview(trajectory_id="a", reason="odd one", worth=0.9),
            NewReview(step_id="s-b", reason="why", worth=0.5),
            NewReview(trajectory_id="empty", reason="nothing there", worth=0.1),
        ]
    )


@pytest.fixture(params=["pool", "url"])
def place(request, tmp_path):
    url = f"sqlite:///{tmp_path}/pool.db"
    with open_pool(url) as opened:
        fill(opened)
    if request.param == "pool":
        yield ("--pool", url)
    else:
        with Serving(open_store(url)) as server:
            yield ("--url", server.url)


def test_next_hands_out_the_highest_worth_and_shows_its_last_messages(cli, place):
    code, out, err = cli("review", "next", "--by", "ann", "--messages", "3", *place)
    assert code == 0
    head = ("review       1", "reason       odd one", "trajectory   a", "(6 messages before;", "[user]\nquestion 7")
    for text in (*head, "[assistant, sampled]", "(thinks) hm", "answer\n[bold]x[/bold]", '{"a": 1)'):
        assert text in out
    assert "question 5" not in out
    assert not {"\x1b", "\x9b", "\u202e"} & set(out)
    assert "\\x1b[2J\\x9b31m\\u202eanswer" in out
    assert "agentworld review accept 1" in err
    # It stays theirs; somebody else gets another one.
    assert "review       1" in cli("review", "next", "--by", "ann", *place)[1]
    out = cli("review", "next", "--by", "bob", "--for", "1h", *place)[1]
    assert "review       2" in out
    assert "step         s-b" in out
    out = cli("review", "next", "--by", "eve", *place)[1]
    assert "No call of a model is on record." in out
    assert "Nothing is to be reviewed." in cli("review", "next", "--by", "joe", *place)[1]
    assert cli("review", "next", "--by", "joe", "--json", *place)[1] == "null\n"
    assert json.loads(cli("review", "next", "--by", "ann", "--json", *place)[1])["review_id"] == 1


def test_what_is_shown_is_bounded(cli, tmp_path):
    url = f"sqlite:///{tmp_path}/pool.db"
    long = Message(role="user", content="x" * 50_000)
    tall = Message(role="assistant", content="y\n" * 1000)
    with open_pool(url) as opened:
        opened.create_trajectory(NewTrajectory(trajectory_id="t"))
        opened.append_steps([Step(step_id="s", trajectory_id="t", prompt_messages=[long], response_message=tall)])
        opened.complete_trajectory("t", "finished", 1.0)
        opened.add_reviews([NewReview(trajectory_id="t", reason="long")])
    out = cli("review", "next", "--by", "ann", "--width", "1000", "--pool", url)[1]
    assert len(out) < 2000
    assert "x" * 999 + "…" in out
    assert "lines more)" in out


def test_verdicts_decide_and_are_taken_back(cli, refused, place):
    assert (
        cli("review", "accept", "1", "--by", "ann", *place)[1] == "review 1 is done (accept); trajectory a is ready\n"
    )
    out = cli("review", "reject", "2", "--by", "ann", "--reason", "wrong", *place)[1]
    assert "review 2 is done (reject); step s-b is excluded: " in out
    assert "manual: wrong" in out
    assert "Missing option '--reason'" in refused("review", "reject", "3", *place, code=2)
    line = refused("review", "reject", "1", "--by", "ann", "--reason", "no", *place)
    assert "review 1 is done. Undo it first" in line
    assert "review 1 is open" in cli("review", "undo", "1", "--by", "ann", *place)[1]
    assert refused("review", "undo", "1", "--by", "ann", *place).endswith("no verdict to take back\n")
    assert "no review 99" in refused("review", "accept", "99", *place)
    cli("review", "next", "--by", "ann", *place)
    assert "with 'ann'. Claim another" in refused("review", "skip", "1", "--by", "bob", *place)
    assert cli("review", "skip", "1", "--by", "ann", *place)[1] == "review 1 is open; ann is not asked it again\n"
    assert "review       3" in cli("review", "next", "--by", "ann", *place)[1]


def test_the_list_has_the_highest_worth_first(cli, place):
    cli("review", "reject", "2", "--by", f"ann{chr(0xE9)}", "--reason", "wrong", *place)
    out = cli("review", "list", *place)[1]
    assert out.index("odd one") < out.index("why") < out.index("nothing there")
    out = cli("review", "list", "--state", "done", *place)[1]
    assert "step s-b" in out
    assert "reject" in out
    assert f"ann{chr(0xE9)}" in out
    assert "odd one" not in out
    assert json.loads(cli("review", "list", "--limit", "1", "--json", *place)[1])["review_id"] == 1
    assert "The first 1; see --limit" in cli("review", "list", "--limit", "1", *place)[2]
    assert "nothing to review" in cli("review", "list", "--channel", "none", *place)[1]
