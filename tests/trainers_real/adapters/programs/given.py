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


def say(said):
    """Hand back what was seen."""
    (FOLDER / "said.json").write_text(json.dumps(said))
