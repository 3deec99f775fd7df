"""One command in isolation: no network, no files but its own and the system's programs, limits, and a certain end.

By bubblewrap where it is installed, else by namespaces that `enter.py` makes itself. What isolation does not give: it
is no virtual machine, so a fault of the kernel is a way out.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from agentworld.errors import AgentWorldError
from agentworld.rewards.isolation.apart import ENTER, processes_apart
from agentworld.rewards.isolation.outcome import Ending, watch

Mechanism = Literal["bubblewrap", "namespaces", "none"]
# Read only inside: programs and libraries, and none of the settings of this machine.
SYSTEM = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store"),
    *("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives"),
)
ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/work",
    "TMPDIR": "/tmp",
    "LANG": "C.UTF-8",
    "PYTHONDONTWRITEBYTECODE": "1",
}
# Of root's sandboxes each has its own user, so that they neither share a count of processes nor see one another.
_FIRST_USER = 0x40000000


class IsolationError(AgentWorldError):
    """This machine gives no isolation, or it could not be set up."""

    code = "isolation_missing"
    status = 503


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a command may use. Sizes in MiB.

    `memory_mb` is the address space of each process, so `processes` times as much is the most that all have together.
    `scratch_mb` is of /work and /tmp each, and of files in one of namespaces there may be one for every 4 KiB of it.
    """

    seconds: float = 60.0
    cpu_seconds: int = 60
    memory_mb: int = 2048
    scratch_mb: int = 256
    processes: int = 64
    open_files: int = 256
    output_mb: int = 16

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if not 0 < getattr(self, name) <= 1 << 30:
                raise ValueError(f"{name} must be over 0")

    @property
    def resources(self) -> list[tuple[str, int]]:
        """As setrlimit takes them."""
        return [
            ("RLIMIT_CPU", self.cpu_seconds),
            ("RLIMIT_AS", self.memory_mb << 20),
            ("RLIMIT_FSIZE", self.scratch_mb << 20),
            ("RLIMIT_NPROC", self.processes),
            ("RLIMIT_NOFILE", self.open_files),
            ("RLIMIT_CORE", 0),
        ]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a command ended. `code` is null where a signal ended it, or where `ending` is another than `ended`.

    `stdout`, `stderr`: the last 64 KiB of each. `mechanism`: what kept it apart.
    """

    ending: Ending
    code: int | None
    signal: int | None
    stdout: str
    stderr: str
    mechanism: Mechanism


def run_isolated(
    command: Sequence[str],
    *,
    files: Mapping[str, str | bytes] | None = None,
    stdin: bytes = b"",
    readable: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    limits: Limits | None = None,
    mechanism: Mechanism | None = None,
) -> Outcome:
    """Run `command` in a fresh scratch folder that holds `files`, which is /work in isolation.

    `readable`: further folders that it sees, read only. `mechanism`: one of them by name; left out, the best that there
    is, and IsolationError where there is none: nothing ever runs without unless it is asked for by name.
    """
    limits = limits or Limits()
    chosen = mechanism or best_mechanism()
    variables = {**ENVIRONMENT, **(environment or {})}
    with _scratch(files or {}) as folder:
        if chosen == "none":
            variables.update({"HOME": f"{folder}/files", "TMPDIR": f"{folder}/files"})
        plan = {
            "mechanism": {"bubblewrap": "given", "none": _without()}.get(chosen, chosen),
            "command": list(command),
            "environment": variables,
            "readable": _readable(readable),
            "files": "/files" if chosen == "bubblewrap" else f"{folder}/files",
            "scratch_bytes": limits.scratch_mb << 20,
            # Without a namespace the count would be of all processes of this user.
            "limits": [each for each in limits.resources if chosen != "none" or each[0] != "RLIMIT_NPROC"],
            "user": _user(),
            "tied": True,
        }
        Path(folder, "plan.json").write_text(json.dumps(plan), encoding="utf-8")
        reading, writing = os.pipe()
        try:
            try:
                process = _start(chosen, folder, plan, writing)
            finally:
                os.close(writing)
            seen = watch(process, stdin, seconds=limits.seconds, output_bytes=limits.output_mb << 20, status=reading)
        finally:
            os.close(reading)
    code, number = _how_it_ended(seen.status, seen.ending, chosen, seen.stderr)
    return Outcome(seen.ending, code, number, seen.stdout, seen.stderr, chosen)


@functools.cache
def best_mechanism() -> Mechanism:
    """bubblewrap or namespaces, whichever works first here; IsolationError says why neither does."""
    reasons = []
    for mechanism in _candidates():
        try:
            outcome = run_isolated(["true"], mechanism=mechanism)
        except IsolationError as error:
            reasons.append(f"{mechanism}: {error.message}")
            continue
        if outcome.code == 0:
            return mechanism
        reasons.append(f"{mechanism}: {outcome.stderr.strip()[-200:] or outcome.ending}")
    raise IsolationError(
        f"this machine gives no isolation ({'; '.join(reasons)})",
        hint='Install bubblewrap, allow unprivileged user namespaces, or say isolation = "none" to run without',
    )


def _candidates() -> tuple[Mechanism, ...]:
    return ("bubblewrap", "namespaces") if shutil.which("bwrap") else ("namespaces",)


def _without() -> str:
    """What a command without isolation still gets: processes of its own, so that all that it started ends with it."""
    return "processes" if processes_apart() else "none"


def _user() -> int | None:
    return _FIRST_USER + (int.from_bytes(os.urandom(3), "big")) if os.geteuid() == 0 else None


@contextmanager
def _scratch(files: Mapping[str, str | bytes]) -> Any:
    with tempfile.TemporaryDirectory(prefix="agentworld-") as folder:
        root = Path(folder, "files")
        root.mkdir()
        for name, content in files.items():
            path = root / name
            if (path.is_absolute() and not path.is_relative_to(root)) or ".." in Path(name).parts or not name:
                raise IsolationError(f"{name!r} is no path within the scratch folder")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass"))
        yield folder


def _readable(further: Sequence[str]) -> list[str]:
    """The system's folders, this Python's, and `further`, without those that lie within another."""
    python = [sys.prefix, sys.base_prefix, str(Path(sys.executable).resolve().parent.parent)]
    wanted = dict.fromkeys([*SYSTEM, *python, *(str(Path(each).absolute()) for each in further)])
    return [each for each in wanted if not any(each != other and Path(each).is_relative_to(other) for other in wanted)]


def _start(mechanism: Mechanism, folder: str, plan: Mapping[str, Any], status: int) -> subprocess.Popen[bytes]:
    inner = [sys.executable, "-I", "-S"]
    if mechanism == "bubblewrap":
        command = [*_bubblewrap(folder, plan), "--", *inner, "/enter.py", "/plan.json", str(status)]
    else:
        command = [*inner, str(ENTER), f"{folder}/plan.json", str(status)]
    try:
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={"PATH": ENVIRONMENT["PATH"]},
            cwd=f"{folder}/files",
            start_new_session=True,
            pass_fds=[status],
        )
    except OSError as error:
        raise IsolationError(f"{command[0]} cannot be started: {error}") from None


def _bubblewrap(folder: str, plan: Mapping[str, Any]) -> list[str]:
    program = shutil.which("bwrap")
    if program is None:
        raise IsolationError("bubblewrap is not installed", hint="Install it, or leave `mechanism` out")
    room = str(plan["scratch_bytes"])
    command = [program, "--die-with-parent", "--new-session", "--as-pid-1"]
    command += ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"]
    if os.geteuid() != 0:
        command += ["--unshare-user"]
    else:  # Without a namespace of users root can become another one, for whom the limit on processes holds.
        command += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID", "--cap-add", "CAP_SETPCAP"]
    command += ["--proc", "/proc", "--dev", "/dev", "--remount-ro", "/dev"]
    for place in ("/work", "/tmp"):
        command += ["--perms", "1777", "--size", room, "--tmpfs", place]
    # bubblewrap makes the folders above a mount for root alone, unless it is told to.
    above = {str(up) for path in plan["readable"] for up in Path(path).parents} - {"/", "/tmp"}
    for path in sorted(above):
        command += ["--perms", "0755", "--dir", path]
    for path in plan["readable"]:
        if os.path.islink(path):
            command += ["--symlink", os.readlink(path), path]
        else:
            command += ["--ro-bind-try", path, path]
    command += ["--ro-bind", f"{folder}/files", "/files", "--ro-bind", f"{folder}/plan.json", "/plan.json"]
    return [*command, "--ro-bind", str(ENTER), "/enter.py", "--remount-ro", "/", "--chdir", "/work"]


def _how_it_ended(status: bytes, ending: Ending, mechanism: str, stderr: str) -> tuple[int | None, int | None]:
    """Exit code and signal as `enter.py` told them; IsolationError where it could not start the command."""
    if ending != "ended":
        return None, None
    if not status:
        raise IsolationError(f"the isolation by {mechanism} ended before the command did: {stderr.strip()[-300:]}")
    said = json.loads(status)
    if "error" in said:
        if str(said["error"]).startswith("the program "):
            raise IsolationError(str(said["error"]))
        raise IsolationError(f"the isolation by {mechanism} failed: {said['error']}")
    return said.get("code"), said.get("signal")
