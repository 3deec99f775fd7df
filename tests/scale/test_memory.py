"""A gateway and a consumer are as large after a million steps as after the first hundred thousand."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
STEPS = int(os.environ.get("AGENTWORLD_SCALE_STEPS", "1000000"))
WARM = 0.2  # of the steps, after which every cache is as large as it gets
GROWTH_KIB = 16 * 1024  # from there to the end: what an allocator may keep, and less than 17 bytes a step

pytestmark = [pytest.mark.scale, pytest.mark.timeout(7200)]


def sampled(role, url):
    """Memory in KiB by the steps that were done, as the process saw it."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.scale.memory", role, url, str(STEPS)], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 0, done.stdout + done.stderr
    samples = [json.loads(line) for line in done.stdout.splitlines()]
    assert samples[-1]["steps"] >= STEPS * 0.95
    return {sample["steps"]: sample["kib"] for sample in samples}


def flatness(role, samples):
    """KiB from the end of the warm-up to the end: the highest of the last tenth less the highest of the first."""
    warm = [kib for steps, kib in samples.items() if WARM * STEPS <= steps <= (WARM + 0.1) * STEPS]
    last = [kib for steps, kib in samples.items() if steps >= 0.9 * STEPS]
    print(
        f"{role}: {max(warm) / 1024:.0f} MiB after {WARM:.0%} of {STEPS:,} steps, {max(last) / 1024:.0f} MiB at the end"
    )
    return max(last) - max(warm)


def test_the_memory_of_a_gateway_and_of_a_consumer_stays_flat(tmp_path):
    """The consumer has what the gateway stored."""
    url = f"sqlite:///{tmp_path}/pool.db"
    assert flatness("gateway", sampled("gateway", url)) < GROWTH_KIB
    print(f"{os.path.getsize(tmp_path / 'pool.db') / STEPS:.0f} bytes of disk a step")
    assert flatness("consumer", sampled("consumer", url)) < GROWTH_KIB
