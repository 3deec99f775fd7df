"""Programs that run in a trainer's environment, with a batch as its pool handed it out."""

from __future__ import annotations

import json
import os
import site
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agentworld.records import Batch
from tests.trainers_real.installed import is_installed, python

PROGRAMS = Path(__file__).parent / "programs"
ROOT = PROGRAMS.parents[3]
TRIES = 5
RAY_IS_LATE = "Ray did not start:"
"""What programs say of it, see programs/given.py."""
SECONDS = 1200
"""Of one program. On an idle machine most take less than 60; Ray's many processes take minutes of a busy one."""


def needs(kind: str) -> Any:
    """The marks of tests that run in that environment."""
    missing = f"not installed: python -m tests.trainers_real.installed {kind}"
    installed = pytest.mark.skipif(not is_installed(kind), reason=missing)
    return [pytest.mark.trainers, installed, pytest.mark.timeout(2 * SECONDS)]


def run(kind: str, name: str, folder: Path, **batches: Batch) -> Any:
    """What the program says of the batches. Packages of this environment come after those of the trainer's."""
    for key, batch in batches.items():
        (folder / f"{key}.json").write_bytes(msgspec.json.encode(batch))
    own = [path for path in site.getsitepackages() if Path(path).is_dir()]
    for left in reversed(range(TRIES)):
        done = subprocess.run(
            [python(kind), PROGRAMS / f"{name}.py", folder],
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
            env={
                **os.environ,
                "OMP_NUM_THREADS": "1",
                "HF_HUB_OFFLINE": "1",
                "HF_HOME": str(folder / "cache"),
                "WANDB_DISABLED": "true",
                # Ray's own waits, in seconds, are short for a busy machine.
                "RAY_gcs_server_port_wait_time_s": "300",
                "RAY_gcs_server_request_timeout_seconds": "300",
                "RAY_worker_register_timeout_seconds": "300",
                "LAST_PACKAGES": os.pathsep.join([str(ROOT / "src"), *own]),
            },
        )
        if not left or RAY_IS_LATE not in done.stderr:
            break
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads((folder / "said.json").read_text())
