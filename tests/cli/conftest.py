import os

import pytest

from agentworld.cli import invoke


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch, tmp_path):
    """No variable of the machine's decides, and files are made in a folder of the test."""
    for name in list(os.environ):
        if name.startswith("AGENTWORLD_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def cli(capsys):
    """Runs a command line in this process; returns its code, what it printed, and what it complained of."""

    def run(*arguments):
        code = invoke([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return code, out, err

    return run


@pytest.fixture
def refused(cli):
    """Runs a command line that has to end with one line on stderr; returns the line."""

    def run(*arguments, code=1):
        got, _, err = cli(*arguments)
        assert got == code, err
        assert err.startswith("agentworld: ")
        assert err.count("\n") == 1
        assert "Traceback" not in err
        return err

    return run
