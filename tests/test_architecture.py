"""Who may import whom, as docs/architecture.md says: a module imports only from those above it."""

import ast
import functools
import pathlib

SOURCE = pathlib.Path(__file__).parent.parent / "src" / "agentworld"

# Top to bottom. A module may import those in earlier lines, and itself.
LAYERS = [
    ["errors", "loopback", "syncing", "timing_wheel", "read_buffer"],
    ["config", "extensions", "http_server"],
    ["records"],
    ["forest"],
    ["query"],
    ["dialects"],
    ["engines"],
    ["pool"],
    ["capture"],
    ["gateway"],
    ["ingest"],
    ["rewards", "feedback"],
    ["curation"],
    ["credit"],
    ["merge"],
    ["trainers"],
    ["tasks"],
    ["agents"],
    ["client"],
    ["api"],
    ["factory"],
    ["testing"],
    ["verl_loop"],
    ["bench"],
    ["demo"],
    ["cli"],
]
LEVEL = {module: level for level, modules in enumerate(LAYERS) for module in modules}
HEAVY = {"torch", "transformers", "accelerate", "gguf", "matplotlib", "reasoning_gym"}
HEAVY_ALLOWED = ("engines/builtin/", "merge/", "trainers/", "tasks/", "demo/")
NO_SQL = ("gateway/", "trainers/", "capture/")


def files():
    return sorted(SOURCE.rglob("*.py"))


def relative(path):
    return path.relative_to(SOURCE).as_posix()


@functools.cache
def imports(path):
    """Names of what the file imports anywhere, each with its line."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [(alias.name, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.append((node.module, node.lineno))
            if node.module == "agentworld":
                found += [(f"agentworld.{alias.name}", node.lineno) for alias in node.names]
    return found


def test_every_module_has_a_layer():
    found = {relative(path).split("/")[0].removesuffix(".py") for path in files()}
    assert found - set(LEVEL) <= {"__init__", "__main__"}


def test_modules_import_only_from_above():
    wrong = []
    for path in files():
        own = relative(path).split("/")[0].removesuffix(".py")
        if own in {"__init__", "__main__"}:
            continue
        for name, line in imports(path):
            parts = name.split(".")
            if parts[0] != "agentworld" or len(parts) < 2 or parts[1] not in LEVEL:
                continue
            if parts[1] != own and LEVEL[parts[1]] >= LEVEL[own]:
                wrong.append(f"{relative(path)}:{line} imports {name}")
    assert wrong == []


def test_heavy_libraries_are_loaded_only_where_they_are_needed():
    wrong = []
    for path in files():
        own = relative(path)
        refused = set() if own.startswith(HEAVY_ALLOWED) else set(HEAVY)
        if own.startswith(NO_SQL):
            refused |= {"sqlite3", "sqlalchemy"}
        if refused:
            found = imports(path)
            wrong += [f"{own}:{line} imports {name}" for name, line in found if name.split(".")[0] in refused]
    assert wrong == []


def test_no_module_is_called_after_nothing():
    names = {path.stem for path in files()} | {path.parent.name for path in files()}
    assert names & {"utils", "util", "helpers", "common", "misc", "manager"} == set()


def test_files_stay_readable():
    long = {relative(path): count for path in files() if (count := len(path.read_text().splitlines())) > 400}
    assert long == {}
