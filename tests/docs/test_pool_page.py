"""The code of the page on the pool runs as it stands there, one block after the other."""

import pytest

from agentworld.client.absent import NOT_OVER_HTTP
from tests.docs.pages import DOCS, blocks, codes, section

PAGE = DOCS / "pool.md"


@pytest.mark.parametrize("url", ["sqlite:///pool.db", "memory://"])
def test_its_examples_run(url, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = {}
    try:
        for block in blocks("python"):
            if block.page == PAGE:
                exec(compile(block.text.replace("sqlite:///pool.db", url), str(block), "exec"), names)
        pool = names["pool"]
        assert pool.get_group("sum-2").served == 2
        assert pool.stats().consumers["careless"].acknowledged == 1
        assert pool.stats().consumers["policy"].acknowledged == 1
        assert "[-0.3" in capsys.readouterr().out
    finally:
        names["pool"].close()


def test_it_names_what_a_server_does_not_offer():
    text = section(PAGE, "Writing").partition("`agentworld.connect(URL)`")[2]
    assert set(codes(text)) == set(NOT_OVER_HTTP)
