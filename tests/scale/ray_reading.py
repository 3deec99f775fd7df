"""Reads a pool through a Ray cluster of two nodes: `python -m tests.scale.ray_reading URL` prints JSON.

Steps are appended while tasks read, which is what a plan must not see.
"""

import json
import sys
import threading

import ray
from examples.ray_pool import cluster

import agentworld as aw
from agentworld.records import Step

STEPS, TRAJECTORIES = 3_000, 60
SELECTIONS = {
    "all": {"blocks": 7, "include": ("tokens", "logprobs", "messages")},
    "chosen by Ray": {"include": ()},
    "where": {"blocks": 5, "where": "step_index >= 40 and reward is null", "include": ("tokens",)},
    "channel": {"blocks": 3, "channel": "val", "include": ()},
    "none": {"blocks": 4, "where": "trajectory_id == 'not there'"},
}


def made_step(number, prefix="s"):
    place = number // TRAJECTORIES
    return Step(
        step_id=f"{prefix}{number}", trajectory_id=f"{prefix}t{number % TRAJECTORIES}", token_source="submitted",
        channel="val" if number % TRAJECTORIES == 7 else "train",
        prompt_ids=list(range(place)), response_ids=[number, 1], response_logprobs=[-0.5, -number / 4],
    )  # fmt: skip


def write_until(pool, stop):
    number = 0
    while not stop.is_set():
        pool.append_steps([made_step(number + place, "later") for place in range(50)])
        number += 50


def main(url):
    found = {}
    with aw.open_pool(url) as pool, cluster():
        for at in range(0, STEPS, 500):
            pool.append_steps([made_step(number) for number in range(at, at + 500)])
        datasets = {name: pool.to_ray(**selection) for name, selection in SELECTIONS.items()}
        stop = threading.Event()
        writing = threading.Thread(target=write_until, args=(pool, stop))
        writing.start()
        try:
            for name, dataset in datasets.items():
                rows = dataset.take_all()
                found[name] = sorted(row["step_id"] for row in rows)
                for row in rows if "tokens" in SELECTIONS[name].get("include", ()) else ():
                    sent = made_step(int(row["step_id"][1:]))
                    assert row["trajectory_id"] == sent.trajectory_id
                    assert list(row["prompt_ids"]) == sent.prompt_ids
                    assert list(row["response_ids"]) == sent.response_ids
        finally:
            stop.set()
            writing.join(60)
        found["logs"] = ray._private.worker._global_node.get_session_dir_path()
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
