"""The command line. Each command is a module of this package with an `app` (typer), imported only when it is used.

Errors are one line on stderr: exit code 1, or 2 where the command line itself is wrong. AGENTWORLD_DEBUG=1 shows the
traceback.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from agentworld.cli.usage import CommandLineError
from agentworld.errors import AgentWorldError, UnauthorizedError

# Every command, in the order of the help text: its one line of help. The module is agentworld.cli.<name>.
COMMANDS: dict[str, str] = {
    "demo": "The whole lifecycle on this machine, offline, ending with a trained policy.",
    "serve": "Serve the gateway and the control API on a pool.",
    "exec": "Run one agent command as one trajectory.",
    "run": "Run agents over tasks: rollouts, groups, concurrency, retries.",
    "import": "Bring trajectories of other tools into a pool.",
    "trajectories": "List trajectories, show one with its steps and its tree, end one.",
    "reward": "Put a reward on a trajectory or on a step.",
    "feedback": "Give feedback on a trajectory or a step, or list what was given.",
    "curate": "Decide what is served: policies, decisions by hand, and why things stand as they do.",
    "review": "Look at what needs a person, one after another.",
    "dataset": "Freeze selections as versions: make, list, compare, verify, trace, export and delete them.",
    "pool": "Look at a pool, check it, collect or delete from it, back it up, export, import, migrate.",
    "merge": "What merging shared beginnings saves on a group, a batch or a dataset, and its token tree.",
    "train": "Train a policy on batches from a pool.",
    "keys": "Make, list and revoke the API keys of a pool.",
    "engine": "Serve a small local model (CPU or one GPU).",
    "bench": "Measure rates, sizes and latencies on this machine.",
    "doctor": "Check engine, tokens, pool and port, and say what to fix.",
}


# Where the command's name cannot be a module's.
_MODULES = {"import": "importing"}


def load(name: str) -> Any:
    """The command `name`, its module imported now."""
    try:
        module = importlib.import_module(f"agentworld.cli.{_MODULES.get(name, name)}")
    except ModuleNotFoundError as error:
        raise missing_package(error, f"agentworld {name}") from error
    command = get_command(module.app)
    command.name = name
    return command


def missing_package(error: ModuleNotFoundError, what: str = "this") -> AgentWorldError:
    """The error of a package that belongs to an extra which is not installed."""
    return AgentWorldError(
        f"{what} needs the Python package {error.name}, which is not installed",
        hint='Install everything with: pip install "agentworld[all]"',
    )


class LazyGroup(TyperGroup):
    """A group whose commands are imported when they run, so that `agentworld --help` loads none of them."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The names, in the order of the help text."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A stand-in that carries the help line; `resolve_command` gets the real one."""
        return TyperCommand(cmd_name, short_help=COMMANDS[cmd_name]) if cmd_name in COMMANDS else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that is to run."""
        if args and args[0] in COMMANDS:
            return args[0], load(args[0]), args[1:]
        return super().resolve_command(ctx, args)


app = typer.Typer(cls=LazyGroup, add_completion=False, rich_markup_mode=None)


def _print_version(value: bool) -> None:
    if value:
        from importlib.metadata import version

        typer.echo(f"agentworld {version('agentworld')}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
    ),
    api_key: str = typer.Option(
        "",
        envvar="AGENTWORLD_API_KEY",
        help="Key of the server that a command asks; better by its variable.",
        show_default=False,
    ),
) -> None:
    """AgentWorld: the data factory for training LLM agents."""
    if api_key:
        os.environ["AGENTWORLD_API_KEY"] = api_key


def invoke(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code; errors are printed, not raised."""
    command = get_command(app)
    try:
        result = command.main(list(arguments) or ["--help"], prog_name="agentworld", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except typer.Abort:
        return 130
    except BrokenPipeError:
        # The reader of a pipe has gone (`| head`): nobody is left to tell, and nothing is left to flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            typer.echo(error.format_message())  # type: ignore[attr-defined]
            return 2
        if os.environ.get("AGENTWORLD_DEBUG") == "1":
            raise
        line, code = explain(error)
        typer.echo(f"agentworld: {' '.join(line.split())}", err=True)
        return code


def explain(error: Exception) -> tuple[str, int]:
    """One line that says what is wrong and what to do, and the exit code."""
    if isinstance(error, UnauthorizedError) and error.path == "authorization":
        # The server's own hint is for those who write requests.
        give = "Give it as AGENTWORLD_API_KEY, or as --api-key before the command; `agentworld keys create` makes one"
        return type(error)(error.message, hint=give).one_line(), 1
    if isinstance(error, AgentWorldError):
        return error.one_line(), 2 if isinstance(error, CommandLineError) else 1
    if isinstance(error, ModuleNotFoundError):
        return missing_package(error).one_line(), 1
    if hasattr(error, "format_message"):  # click's errors; typer carries its own copy of click since 0.2x
        context = getattr(error, "ctx", None)
        path = context.command_path if context is not None else "agentworld"
        # Where an enumeration refuses a word, typer puts the name of the exception's class into the sentence.
        said = error.format_message().rstrip(".").replace(": Value error, ", ": ")
        return f"{said}. See: {path} --help", getattr(error, "exit_code", 2)
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}{f': {error.filename}' if error.filename else ''}", 1
    return f"unexpected {type(error).__name__}: {error}. AGENTWORLD_DEBUG=1 shows where it comes from", 1


def main() -> NoReturn:
    """The console script."""
    sys.exit(invoke(sys.argv[1:]))
