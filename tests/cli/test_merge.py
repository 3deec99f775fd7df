"""`agentworld merge`: what is asked, what is told beside the numbers, and stored text as data."""

import json

import pytest

from agentworld.cli import invoke
from agentworld.engines.tokenizer import load_tokenizer
from agentworld.factory import open_pool
from agentworld.records import Step
from tests.api.serving import Serving
from tests.merge.pools import filled


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    url = f"sqlite:///{tmp_path_factory.mktemp('merge')}/pool.db"
    tokenizer = load_tokenizer("byte")
    with open_pool(url) as pool:
        filled(pool)
        evil = tokenizer.encode("\x1b[2J[bold]\n\ttext")
        pool.append_steps(
            [Step(step_id="evil-0", trajectory_id="evil", prompt_ids=evil, response_ids=[65],
                  token_source="submitted", vocabulary=tokenizer.digest.hex())]
        )  # fmt: skip
    return url


def ran(capsys, *words):
    code = invoke(["merge", *words])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_a_pool_and_a_server_print_the_same(capsys, url):
    asked = ["--group", "g", "--budget", "130", "--model", "2/16/100"]
    with open_pool(url) as own, Serving(pool=own.store) as server:
        for words in (["stats", *asked], ["stats", *asked, "--json"], ["show", "--group", "g"]):
            own_said, their_said = (ran(capsys, *words, *place) for place in (["--pool", url], ["--url", server.url]))
            assert own_said == their_said
            assert own_said[0] == 0
    assert json.loads(ran(capsys, "show", "--pool", url, "--json", "--max-nodes", "2")[1])["nodes_in_all"] == 12


def test_stored_text_is_data(capsys, url):
    _, shown, _ = ran(capsys, "show", "--trajectory", "evil", "--pool", url)
    assert r"[evil-0]  \x1b[2J[bold]  textA" in shown
    assert "\x1b" not in shown


def test_a_tree_without_forks_has_none(capsys, url):
    _, said, _ = ran(capsys, "stats", "--trajectory", "evil", "--pool", url)
    assert "forks       none\n" in said
    assert "because of" not in said


def test_what_is_left_out_is_told(capsys, url):
    _, said, beside = ran(capsys, "stats", "--max-tokens", "300", "--pool", url)
    assert "2 sequences in 1 unit" in said
    assert "Reading stopped at its most tokens" in beside
    _, said, beside = ran(capsys, "show", "--max-nodes", "3", "--tokenizer", "byte", "--pool", url)
    assert "9 stretches left out; --max-nodes and --depth show more." in beside
    assert "Ids of the vocabulary own are not of this tokenizer." in beside
    assert "1 excluded by curation, 1 without ids" in beside
    _, said, _ = ran(capsys, "stats", "--budget", "50", "--group", "g", "--pool", url)
    assert "8 sequences longer than that, not packed" in said


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["stats", "--group", "g", "--trajectory", "g-1"], "group and trajectory exclude each other"),
        (["stats", "--split", "train"], "split goes with dataset"),
        (["stats", "--dataset", "none"], "none"),
        (["stats", "--model", "huge"], "no model 'huge' is known (at model). Use LAYERS/HIDDEN/VOCABULARY"),
        (["show", "--tokenizer", "nowhere"], "no tokenizer at nowhere"),
        (["show", "--consumer", "c"], "consumer 'c' has leased no batch"),
    ],
)
def test_what_cannot_be_asked_is_an_error_in_one_line(capsys, url, words, complaint):
    code, _, said = ran(capsys, *words, "--pool", url)
    assert code != 0
    assert len(said.splitlines()) == 1
    assert complaint in said
