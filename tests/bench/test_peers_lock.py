"""The peers of the benchmark are installed in the versions that its page names, with all that they need."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from agentworld.bench import peers

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "benchmarks" / "peers"
PACKAGES = {"litellm": "litellm", "rllm": "rllm-model-gateway", "agentlightning": "agentlightning"}


def locked(name: str) -> dict[str, str]:
    """Package to version, of a lock in which every line names one version."""
    lines = [line for line in (FOLDER / f"{name}.txt").read_text().splitlines() if not line.startswith("#")]
    found = dict(line.split("==") for line in lines)
    assert len(found) == len(lines)
    assert all(re.fullmatch(r"[0-9][0-9A-Za-z.+!]*", version) for version in found.values())
    return found


@pytest.mark.parametrize("name", [peer.name for peer in peers.PEERS])
def test_a_peer_is_locked_in_the_version_that_was_measured(name: str) -> None:
    found = locked(name)
    version = found[PACKAGES[name]]
    assert re.search(rf"{re.escape(PACKAGES[name])} {re.escape(version)}", _page(), re.IGNORECASE)
    assert len(found) > 10


def test_only_what_is_locked_is_installed() -> None:
    assert {path.stem for path in FOLDER.glob("*.txt")} == {peer.name for peer in peers.PEERS}
    script = (FOLDER / "install.sh").read_text()
    assert '--no-deps -r "$HERE/$name.txt"' in script
    done = subprocess.run(["bash", FOLDER / "install.sh", "other"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "unknown: other" in done.stderr


def _page() -> str:
    return (ROOT / "docs" / "benchmarks.md").read_text()
