"""A pool read by a Ray cluster: mean reward and tokens of each group, computed where the steps are read.

    pip install "agentworld[ray]"
    python examples/ray_pool.py                                  # a SQLite pool in a temporary folder
    python examples/ray_pool.py postgresql://user:password@host/database

Fills the pool with rollouts, starts a cluster of two nodes with one CPU each on this machine, and ends it. On a cluster
of your own, replace `cluster()` by `ray.init(address="auto")`. Left out: training on the dataset, which goes on with
`dataset.iter_torch_batches()` or `dataset.streaming_split()`.
"""

import contextlib
import os
import sys
import tempfile

os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # Ray asks for this choice; there is no GPU here.

import numpy as np
import ray
from ray.cluster_utils import Cluster

import agentworld as aw
from agentworld.testing.workload import tool_trajectories

TASKS, ROLLOUTS, TURNS, NEW_IDS = 3, 4, 6, 200


@contextlib.contextmanager
def cluster():
    """Two nodes on this machine with 100 MB each for objects."""
    node = {"num_cpus": 1, "object_store_memory": 100 << 20}
    started = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
    started.add_node(**node)
    try:
        ray.init(address=started.address, log_to_driver=False)
        yield
    finally:
        ray.shutdown()
        started.shutdown()


def fill(pool):
    """Rollouts of a few tasks; later rollouts of a task do better."""
    for number, steps in enumerate(tool_trajectories(TASKS, ROLLOUTS, TURNS, NEW_IDS)):
        pool.append_steps(steps)
        pool.complete_trajectory(steps[0].trajectory_id, "finished", reward=float(number % ROLLOUTS))


def count_tokens(batch):
    """For each step what is summed up later, and the node that this ran on."""
    sampled = []
    for ids, mask in zip(batch["response_ids"], batch["response_mask"], strict=True):
        sampled.append(len(ids) if mask is None else int(mask.sum()))  # No mask: the policy sampled them all.
    return {
        "group": batch["group_id"],
        "reward": batch["trajectory_reward"],
        "is_last": batch["is_last"],
        "sampled": np.array(sampled),
        "node": np.array([ray.get_runtime_context().get_node_id()] * len(sampled)),
    }


def main(url):
    with aw.open_pool(url) as pool, cluster():
        fill(pool)
        steps = pool.to_ray(where="ready", blocks=6).map_batches(count_tokens).to_pandas()
    nodes = sorted(set(steps["node"]))
    print(f"{len(steps)} steps, {steps['sampled'].sum()} sampled tokens, read by {len(nodes)} nodes")
    for node in nodes:
        print(f"  node {node[:8]} read {(steps['node'] == node).sum()} steps")
    for group, found in steps.groupby("group"):
        rewards = found["reward"][found["is_last"]]
        print(f"{group}: mean reward {rewards.mean():.2f} of {len(rewards)}, {found['sampled'].sum()} sampled tokens")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        with tempfile.TemporaryDirectory() as folder:
            main(f"sqlite:///{folder}/pool.db")
