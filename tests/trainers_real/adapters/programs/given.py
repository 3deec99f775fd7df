"""What every program here begins with: the packages of the tests after its own, and the batches."""

import json
import os
import site
import sys
from pathlib import Path

FOLDER = Path(sys.argv[1])
for _path in os.environ["LAST_PACKAGES"].split(os.pathsep):
    site.addsitedir(_path)


def batch(name):
    """One of the batches."""
    import msgspec

    from agentworld.records import Batch

    return msgspec.json.decode((FOLDER / f"{name}.json").read_bytes(), type=Batch)


def start_ray():
    """A local Ray. It gives up on its own start after 30 s, which a busy machine may take: then it is started again."""
    import ray

    for left in range(4, -1, -1):
        try:
            ray.init(num_cpus=4, include_dashboard=False, logging_level="ERROR")
            return
        except Exception as error:
            ray.shutdown()
            if not left or "timed out" not in str(error).lower():
                raise


def say(said):
    """Hand back what was seen."""
    (FOLDER / "said.json").write_text(json.dumps(said))
