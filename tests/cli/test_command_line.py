import subprocess
import sys

import pytest
import typer

from agentworld import cli as command_line
from agentworld.errors import AgentWorldError


def test_help_lists_every_command(cli):
    code, out, _ = cli("--help")
    assert code == 0
    for name, line in command_line.COMMANDS.items():
        assert name in out
        assert line.split()[0] in out
    assert cli() == (code, out, "")


def test_version(cli):
    code, out, _ = cli("--version")
    assert code == 0
    assert out.startswith("agentworld ")


def test_a_wrong_command_line_ends_with_code_two(refused):
    assert "No such command 'srve'" in refused("srve", code=2)
    assert "No such option" in refused("serve", "--prot", "1", code=2)
    assert "agentworld reward set --help" in refused("reward", "set", "t1", code=2)
    assert "agentworld reward set --help" in refused("reward", "set", "t1", "much", code=2)
    assert "Missing command" in refused("trajectories", code=2)
    line = refused("feedback", "add", "t1", "ratin", code=2)
    assert "'KIND': 'ratin' is not one of 'rating', 'label', 'correction'" in line


@pytest.mark.parametrize("name", ["serve", "doctor", "trajectories", "reward", "pool"])
def test_every_command_has_help(cli, name):
    code, out, _ = cli(name, "--help")
    assert code == 0
    assert f"Usage: agentworld {name}" in out


def command_that_raises(error):
    app = typer.Typer()

    @app.command()
    def serve():
        raise error

    return typer.main.get_command(app)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (AgentWorldError("it is so", path="port", hint="Do this"), "it is so (at port). Do this"),
        (PermissionError(13, "Permission denied", "/pool.db"), "Permission denied: /pool.db"),
        (RuntimeError("of\nours"), "unexpected RuntimeError: of ours. AGENTWORLD_DEBUG=1 shows where"),
    ],
)
def test_every_error_is_one_line(refused, monkeypatch, error, said):
    monkeypatch.setattr(command_line, "load", lambda name: command_that_raises(error))
    assert said in refused("serve")


def test_debugging_shows_the_traceback(cli, monkeypatch):
    monkeypatch.setenv("AGENTWORLD_DEBUG", "1")
    monkeypatch.setattr(command_line, "load", lambda name: command_that_raises(RuntimeError("ours")))
    with pytest.raises(RuntimeError):
        cli("serve")


def test_a_missing_extra_is_named(refused, monkeypatch):
    def missing(name):
        raise ModuleNotFoundError("No module named 'torch'", name="torch")

    monkeypatch.setattr(command_line.importlib, "import_module", missing)
    line = refused("train")
    assert "torch" in line
    assert "pip install" in line


def test_python_m_runs_it():
    done = subprocess.run(
        [sys.executable, "-m", "agentworld", "nonsense"], capture_output=True, text=True, timeout=150, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith("agentworld: No such command")


def test_the_demo_names_what_it_lacks_before_it_writes(refused, monkeypatch, tmp_path):
    from agentworld.cli import demo

    monkeypatch.setattr(demo, "PACKAGES", ("os", "no_such_package"))
    assert "package no_such_package. Install" in refused("demo", "--out", tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_package_that_a_command_lacks_is_named(refused, monkeypatch):
    error = ModuleNotFoundError("No module named 'torch'", name="torch")
    monkeypatch.setattr(command_line, "load", lambda name: command_that_raises(error))
    assert "torch, which is not installed. Install everything" in refused("serve")
