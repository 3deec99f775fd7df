"""Where the trainers of these tests are, and how they get there: `python -m tests.trainers_real.installed trl`.

Each has a virtual environment of its own, as they want different releases of what they share, in a cache folder under
the digest of its lock. torch is a CPU build: package files of this machine first, then TORCH_INDEX.
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
KINDS = ("trl", "verl", "transfer_queue", "objects")
WITHOUT_TORCH = ("objects",)


def lock_of(kind: str) -> Path:
    """The releases of everything but torch."""
    return HERE / f"{kind}.txt"


def torch_version() -> str:
    """The release of torch, as the Makefile says it."""
    return os.environ.get("TORCH_VERSION") or "2.13.0"


def folder(kind: str) -> Path:
    """Where that trainer is, once it is installed."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    digest = hashlib.sha256(lock_of(kind).read_bytes() + torch_version().encode()).hexdigest()[:12]
    tag = f"py{sys.version_info.major}.{sys.version_info.minor}"
    return Path(cache).expanduser() / "agentworld" / "trainers" / f"{kind}-{tag}-{digest}"


def python(kind: str) -> Path:
    """The interpreter that has it."""
    return folder(kind) / "bin" / "python"


def is_installed(kind: str) -> bool:
    """Whether an installation was brought to its end."""
    return (folder(kind) / ".installed").exists()


def install(kind: str) -> None:
    """Fetch torch and what the lock names; nothing where it is there."""
    if is_installed(kind):
        return
    place = folder(kind)
    place.parent.mkdir(parents=True, exist_ok=True)
    with (place.parent / f"{place.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # Another clone may be at it.
        if is_installed(kind):
            return
        shutil.rmtree(place, ignore_errors=True)
        print(f"trainers: installing what {lock_of(kind).name} locks into {place}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", place], check=True)
        try:
            if kind not in WITHOUT_TORCH:
                _torch(kind)
            _pip(kind, "install", "--no-compile", "--no-deps", "-r", lock_of(kind))
        except subprocess.CalledProcessError as error:
            sys.exit(f"trainers: {' '.join(map(str, error.cmd))} failed; what it said is above")
        (place / ".installed").touch()


def _torch(kind: str) -> None:
    wanted = f"torch=={torch_version()}"
    try:
        _pip(kind, "install", "--no-compile", "--no-deps", "--no-index", wanted, quietly=True)
    except subprocess.CalledProcessError:
        index = os.environ.get("TORCH_INDEX") or ""
        _pip(kind, "install", "--no-compile", "--no-deps", *(["--index-url", index] if index else []), wanted)


def _pip(kind: str, *arguments: str | Path, quietly: bool = False) -> None:
    command = [python(kind), "-m", "pip", *arguments, "--quiet", "--disable-pip-version-check"]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL if quietly else None)


if __name__ == "__main__":
    for each in sys.argv[1:] or KINDS:
        install(each)
