"""Where the clients of these tests are, and how they get there: `python -m tests.clients.installed npm python`.

They live in a cache folder under the digest of their lock, so that clones share them and a changed lock makes new ones.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
LOCKS = {"npm": HERE / "package-lock.json", "python": HERE / "requirements.txt"}


def folder(kind: str) -> Path:
    """Where the clients of that kind are, once they are installed."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    digest = hashlib.sha256(LOCKS[kind].read_bytes()).hexdigest()[:12]
    tag = f"-py{sys.version_info.major}.{sys.version_info.minor}" if kind == "python" else ""
    return Path(cache).expanduser() / "agentworld" / "clients" / f"{kind}{tag}-{digest}"


def is_installed(kind: str) -> bool:
    """Whether an installation was brought to its end."""
    return (folder(kind) / ".installed").exists()


def programs() -> Path:
    """Where the CLIs of Node.js are."""
    return folder("npm") / "node_modules" / ".bin"


def python() -> Path:
    """The interpreter that has the packages."""
    return folder("python") / "bin" / "python"


def install(kind: str) -> None:
    """Fetch what the lock names; nothing where it is there, or where there is no npm for what needs it."""
    if is_installed(kind):
        return
    if kind == "npm" and shutil.which("npm") is None:
        print("clients: there is no npm, so the tests of Claude Code and Codex CLI will be skipped", flush=True)
        return
    place = folder(kind)
    place.parent.mkdir(parents=True, exist_ok=True)
    with (place.parent / f"{place.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # Another clone may be at it.
        if is_installed(kind):
            return
        shutil.rmtree(place, ignore_errors=True)
        print(f"clients: installing what {LOCKS[kind].name} locks into {place}", flush=True)
        try:
            _npm(place) if kind == "npm" else _pip(place)
        except subprocess.CalledProcessError as error:
            sys.exit(f"clients: {' '.join(map(str, error.cmd))} failed; what it said is above")
        (place / ".installed").touch()


def _npm(place: Path) -> None:
    place.mkdir()
    for name in ("package.json", "package-lock.json", ".npmrc"):
        shutil.copy(HERE / name, place / name)
    subprocess.run(["npm", "ci", "--no-audit", "--no-fund", "--loglevel=error"], cwd=place, check=True)


def _pip(place: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", place], check=True)
    command = [place / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*command, "--no-deps", "-r", LOCKS["python"]], check=True)


def say_where() -> None:
    """Print how those that are installed are started."""
    if is_installed("npm"):
        print(f'Claude Code and Codex CLI: export PATH="{programs()}:$PATH"')
    if is_installed("python"):
        print(f"The packages for Python: {python()}")


if __name__ == "__main__":
    for each in sys.argv[1:]:
        say_where() if each == "where" else install(each)
