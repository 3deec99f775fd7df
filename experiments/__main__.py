"""`python -m experiments`: run cells, list them, make the page."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from agentworld.errors import AgentWorldError
from experiments.cells import CELLS, chosen, plan_for
from experiments.results import FOLDER, result_path

PAGE = Path(__file__).parents[1] / "docs" / "experiments.md"


def main(arguments: list[str] | None = None) -> int:
    """The command; errors are one line on stderr and exit code 1."""
    parser = argparse.ArgumentParser(prog="experiments", description="Does data from the factory train agents?")
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="run cells that have no result yet, one after the other")
    run.add_argument("cells", nargs="*", metavar="CELL", help="cells or axes (default: all)")
    run.add_argument("--seeds", type=int, default=3, help="seeds 0 to this (default 3)")
    run.add_argument("--minutes", type=float, default=4.0, help="of a run on two idle cores (default 4)")
    run.add_argument("--work", type=Path, default=Path("runs/experiments"), help="starts and what is under way")
    commands.add_parser("list", help="the cells")
    page = commands.add_parser("page", help="write docs/experiments.md from the results")
    page.add_argument("--out", type=Path, default=PAGE)
    for each in (run, page):
        each.add_argument("--results", type=Path, default=FOLDER, help="folder of their folders")
    options = parser.parse_args(arguments)
    try:
        if options.command == "run":
            return _run(options)
        if options.command == "list":
            for cell in CELLS.values():
                print(f"{cell.name:<20} {cell.axis:<10} {cell.what}")
            return 0
        from experiments.page import write_page

        write_page(options.results, options.out)
    except AgentWorldError as error:
        print(f"experiments: {error.one_line()}", file=sys.stderr)
        return 1
    return 0


def _run(options: argparse.Namespace) -> int:
    """Cell by cell in the order given, so that an interruption leaves whole cells; exit code 1 where one failed."""
    cells, plan, failed = chosen(options.cells), plan_for(options.minutes), 0
    todo = [(cell, seed) for cell in cells for seed in range(options.seeds)]
    todo = [(cell, seed) for cell, seed in todo if not result_path(options.results, plan, cell.name, seed).exists()]
    if not todo:
        return 0
    from agentworld.demo.services import Services
    from experiments.training import run_cell
    from experiments.tree import start_engine

    with Services(options.work / "logs") as services:
        engine_url = start_engine(services)
        for cell, seed in todo:
            services.check()
            try:
                path = run_cell(cell, seed, plan, options.work, options.results, engine_url, _say)
            except AgentWorldError as error:
                print(f"{cell.name} seed {seed}: {error.one_line()}", file=sys.stderr, flush=True)
                failed += 1
            else:
                _say(str(path))
    return 1 if failed else 0


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
