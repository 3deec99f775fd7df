"""`agentworld dataset` on a pool and on a server."""

import json

import pytest

from agentworld.factory import open_pool
from agentworld.pool import open_store
from agentworld.records import NewTrajectory, Step
from tests.api.serving import Serving

HOSTILE = "\x1b[31m\x07\u202e"


def fill(pool, names, **more):
    for number in names:
        name = f"t{number}"
        task = {"task_id": number // 2, "task_set": f"sums{HOSTILE}"}
        pool.create_trajectory(NewTrajectory(trajectory_id=name, task=task, **more))
        fields = {"prompt_ids": [1, number], "response_ids": [2], "token_source": "submitted", "model": f"m{HOSTILE}"}
        pool.append_steps([Step(step_id=f"s{number}", trajectory_id=name, **fields)])
        pool.complete_trajectory(name, "finished", number / 10)


@pytest.fixture(params=["pool", "url"])
def place(request, tmp_path):
    """The options that name a filled pool on SQLite: the pool itself, or a server on it."""
    url = f"sqlite:///{tmp_path}/pool.db"
    with open_pool(url) as opened:
        fill(opened, range(10))
    if request.param == "pool":
        yield ("--pool", url)
    else:
        with Serving(open_store(url)) as server:
            yield ("--url", server.url)


def words(out):
    return [line.split() for line in out.splitlines()]
