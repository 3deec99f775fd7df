"""Child processes: bounded output, time-outs that reach the whole group, nothing left behind."""

import asyncio
import os
import sys

import pytest

from agentworld.agents import process as process_module
from agentworld.agents.ports import AgentFailure
from agentworld.agents.process import KEPT_BYTES, run_command
from tests.alive import alive
from tests.held_time_outs import HeldTimeOuts


async def run(script, *arguments, stdin=b"", timeout=120.0, **variables):
    return await run_command(
        [sys.executable, "-c", script, *arguments],
        env={**os.environ, **variables},
        cwd=None,
        stdin=stdin,
        timeout=timeout,
    )


async def gone(pid):
    """Waits until a process that was killed is no more; the kernel takes a moment."""
    async with asyncio.timeout(120):
        while alive(pid):  # noqa: ASYNC110 - another process's end
            await asyncio.sleep(0.01)


async def test_output_code_and_stdin():
    done = await run(
        "import sys; print(sys.stdin.read()[::-1]); print('x', file=sys.stderr); sys.exit(3)", stdin=b"abc"
    )
    assert (done.code, done.stdout, done.stderr, done.timed_out) == (3, "cba\n", "x\n", False)


async def test_command_that_reads_no_stdin():
    done = await run("print('ok')", stdin=b"x" * 1_000_000)
    assert (done.code, done.stdout) == (0, "ok\n")


async def test_only_the_end_of_long_output_is_kept():
    done = await run("print('a' * 1_000_000 + 'end')")
    assert len(done.stdout) == KEPT_BYTES
    assert done.stdout.endswith("end\n")


async def test_time_out_kills_what_the_command_started(monkeypatch, tmp_path):
    monkeypatch.setattr(process_module, "GRACE_SECONDS", 0.1)
    limits, told = HeldTimeOuts(7.25, monkeypatch), tmp_path / "told"
    script = (
        "import signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "print(child.pid, flush=True)\n"
        "open(sys.argv[1], 'x').close()\n"
        "time.sleep(600)\n"
    )
    running = asyncio.create_task(run(script, str(told), timeout=7.25))
    async with asyncio.timeout(120):
        while not told.exists():  # noqa: ASYNC110 - another process's work
            await asyncio.sleep(0.01)
    limits.run_out()
    done = await running
    assert done.timed_out
    await gone(int(done.stdout))


async def test_background_children_end_with_their_leader():
    done = await run("import subprocess; print(subprocess.Popen(['sleep', '600']).pid)")
    assert not done.timed_out
    await gone(int(done.stdout))


async def test_missing_program_is_a_failure_that_names_it():
    with pytest.raises(AgentFailure, match="cannot start '/no/such/agent'"):
        await run_command(["/no/such/agent"], env={}, cwd=None, stdin=b"", timeout=1)
