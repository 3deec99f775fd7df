"""`import agentworld` and the command line's help are quick because they load next to nothing."""

import subprocess
import sys

HEAVY = {"torch", "transformers", "litestar", "sqlalchemy", "httptools", "aiohttp", "renderers", "numpy", "tokenizers"}
REPORT = "; import sys; print('\\n'.join(sorted({name.split('.')[0] for name in sys.modules})))"


def loaded_by(code):
    done = subprocess.run(
        [sys.executable, "-c", code + REPORT], capture_output=True, text=True, timeout=150, check=True
    )
    return set(done.stdout.split())


def test_importing_the_package_loads_nothing_heavy():
    loaded = loaded_by("import agentworld")
    assert "agentworld" in loaded
    assert loaded & HEAVY == set()


def test_a_record_costs_no_web_framework():
    loaded = loaded_by("import agentworld as aw; aw.BatchSpec(method='sft'); aw.connect('http://127.0.0.1:1')")
    assert "msgspec" in loaded
    assert loaded & (HEAVY - {"numpy"}) == set()


def test_help_loads_no_command():
    loaded = loaded_by("from agentworld.cli import invoke; invoke(['--help'])")
    assert "typer" in loaded
    assert loaded & HEAVY == set()


def test_every_public_name_resolves():
    import agentworld

    for name in agentworld.__all__:
        assert getattr(agentworld, name) is not None
    assert agentworld.__version__
    assert set(agentworld.__all__) <= set(dir(agentworld))
