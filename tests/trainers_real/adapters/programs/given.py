"""What every program here begins with: the packages of the tests after its own, and the batches."""

import json
import os
import site
import sys
from pathlib import Path

FOLDER = Path(sys.argv[1])
RAY_IS_LATE = "Ray did not start:"
for _path in os.environ["LAST_PACKAGES"].split(os.pathsep):
    site.addsitedir(_path)


def batch(name):
    """One of the batches."""
    import msgspec

    from agentworld.records import Batch

    return msgspec.json.decode((FOLDER / f"{name}.json").read_bytes(), type=Batch)


def start_ray():
    """A local Ray. Its parts wait for each other for 15 s, whatever they are told. A busy machine may take longer: the
    program is called again then, as what did start ends with it.
    """
    import ray

    try:
        ray.init(num_cpus=4, include_dashboard=False, logging_level="ERROR")
    except Exception as error:
        if "timed out" not in str(error).lower():
            raise
        sys.exit(f"{RAY_IS_LATE} {error}")


def say(said):
    """Hand back what was seen."""
    (FOLDER / "said.json").write_text(json.dumps(said))
