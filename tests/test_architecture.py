"""Who may import whom, as docs/architecture.md says: a module imports only from those above it."""

import ast
import functools
import pathlib

SOURCE = pathlib.Path(__file__).parent.parent / "src" / "agentworld"

# Top to bottom. A module may import those in earlier lines, and itself.
LAYERS = [
    ["errors", "loopback"],
    ["config", "extensions"],
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
def parsed(path):
    return ast.parse(path.read_text())


def imports(tree, top_level_only=False):
    nodes = _outside_functions(tree) if top_level_only else ast.walk(tree)
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module, node.lineno
            if node.module == "agentworld":
                for alias in node.names:
                    yield f"agentworld.{alias.name}", node.lineno


def _outside_functions(node):
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) or _is_type_checking(child):
            continue
        yield child
        yield from _outside_functions(child)


def _is_type_checking(node):
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def test_every_module_has_a_layer():
    found = {relative(path).split("/")[0].removesuffix(".py") for path in files()}
    assert found - set(LEVEL) <= {"__init__", "__main__"}


def test_modules_import_only_from_above():
    wrong = []
    for path in files():
        own = relative(path).split("/")[0].removesuffix(".py")
        if own in {"__init__", "__main__"}:
            continue
        for name, line in imports(parsed(path)):
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
            found = imports(parsed(path))
            wrong += [f"{own}:{line} imports {name}" for name, line in found if name.split(".")[0] in refused]
    assert wrong == []


def test_no_module_is_called_after_nothing():
    names = {path.stem for path in files()} | {path.parent.name for path in files()}
    assert names & {"utils", "util", "helpers", "common", "misc", "manager"} == set()


def test_files_stay_readable():
    long = {relative(path): count for path in files() if (count := len(path.read_text().splitlines())) > 400}
    assert long == {}
