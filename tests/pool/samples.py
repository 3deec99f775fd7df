"""Records that tests of pools begin from."""

import contextlib
import itertools
import threading

from agentworld.records import Message, NewTrajectory, Policy, Step

_numbers = itertools.count()


def step(trajectory_id="t", **changes):
    """A step with tokens, log-probabilities and messages."""
    number = next(_numbers)
    values = {
        "step_id": f"s{number}",
        "trajectory_id": trajectory_id,
        "prompt_ids": [1, 2, 3],
        "response_ids": [4, number],
        "response_logprobs": [-0.5, -1.5],
        "prompt_messages": [Message(role="user", content="question")],
        "response_message": Message(role="assistant", content=f"answer {number}"),
        "token_source": "submitted",
        "policy": Policy("m", "r", 0),
        **changes,
    }
    return Step(**values)


@contextlib.contextmanager
def writer_held(pool):
    """The writing thread has a transaction of its own: what is submitted inside is together in the next one."""
    begun, gate = threading.Event(), threading.Event()
    held = pool._writer.submit(lambda txn: (begun.set(), gate.wait(100)))
    assert begun.wait(100)
    yield
    gate.set()
    held.result(100)


def finished(pool, trajectory_id, *, reward=None, steps=1, status="finished", step_changes=None, **settings):
    """A trajectory that has ended with `steps` steps; returns their ids."""
    pool.create_trajectory(NewTrajectory(trajectory_id=trajectory_id, **settings))
    sent = [step(trajectory_id, **(step_changes or {})) for _ in range(steps)]
    assert [result.outcome for result in pool.append_steps(sent)] == ["stored"] * steps
    pool.complete_trajectory(trajectory_id, status, reward)
    return [one.step_id for one in sent]


def group(pool, group_id, rewards, **settings):
    """A group whose rollouts ended with these rewards (None: unrewarded)."""
    for number, reward in enumerate(rewards):
        finished(pool, f"{group_id}-{number}", reward=reward, group_id=group_id, group_size=len(rewards), **settings)


def ids(page):
    return [getattr(item, "step_id", None) or item.trajectory_id for item in page.items]
