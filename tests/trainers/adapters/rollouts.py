"""Batches as pools hand them out: a run of two turns with a tool's words between, one that forked, one cut short."""

import numpy as np
from hypothesis import strategies as st

from agentworld.records import (
    Batch,
    BatchItem,
    BatchTrajectory,
    FunctionCall,
    Message,
    Policy,
    Sampling,
    Step,
    ToolCall,
    Trajectory,
    VersionSpan,
)

TOOL = {"type": "function", "function": {"name": "look", "description": "Look", "parameters": {"type": "object"}}}
ASKED = [Message(role="user", content="Where is it?")]
CALL = Message(
    role="assistant",
    reasoning="I look.",
    tool_calls=(ToolCall(id="c1", function=FunctionCall(name="look", arguments='{"at": "door"}')),),
)
SEEN = Message(role="tool", content="A door.", tool_call_id="c1")


def step(name, prompt, reply, *, trajectory, logprobs=None, space="raw", version=3, **more):
    """A step whose log-probabilities are -0.1, -0.2, ... unless they are given."""
    return Step(
        step_id=name,
        trajectory_id=trajectory,
        prompt_ids=list(prompt),
        response_ids=list(reply),
        response_logprobs=[-0.1 * (place + 1) for place in range(len(reply))] if logprobs is None else logprobs,
        logprob_space=space,
        sampling=more.pop("sampling", Sampling(temperature=1.0)),
        policy=Policy("m", "default", version),
        vocabulary="v",
        token_source="engine",
        finish_reason=more.pop("finish_reason", "stop"),
        **more,
    )


def member(name, steps, reward, **more):
    trajectory = Trajectory(
        trajectory_id=name,
        reward=reward,
        rewards={} if reward is None else {"reward": reward},
        status=more.pop("status", "finished"),
        task={"task_id": "t1", "task_set": "doors", "reference": "left"},
    )
    counted = sum(sum(each.response_mask or [1] * len(each.response_ids)) for each in steps)
    return BatchTrajectory(trajectory=trajectory, steps=steps, loss_denominator=counted, **more)


def said(name, reply, *, reasoning=None):
    """Two turns in messages and ids: a question, a call of a tool (its second token was put there), the answer."""
    answer = Message(role="assistant", content=reply, reasoning=reasoning)
    first = step(f"{name}-0", [1, 2, 3], [4, 5, 6], trajectory=name, response_mask=[1, 0, 1], tools=[TOOL],
                 prompt_messages=ASKED, response_message=CALL, rewards={"reward": 1.0},
                 version_spans=(VersionSpan(0, 3), VersionSpan(2, 4)))  # fmt: skip
    second = step(f"{name}-1", [1, 2, 3, 4, 5, 6, 7, 8], [9, 10], trajectory=name, parent_step_id=f"{name}-0",
                  tools=[TOOL], prompt_messages=[*ASKED, CALL, SEEN], response_message=answer,
                  rewards={"reward": 0.0}, version=4)  # fmt: skip
    return [first, second]


def forked(name):
    """A reply that two others go on from, and one whose prompt was written anew."""
    return [
        step(f"{name}-0", [1, 2], [3, 4], trajectory=name),
        step(f"{name}-1", [1, 2, 3, 4, 5], [6], trajectory=name, parent_step_id=f"{name}-0"),
        step(f"{name}-2", [1, 2, 3, 4, 7], [8, 9], trajectory=name, parent_step_id=f"{name}-0"),
        step(f"{name}-3", [7, 7, 7], [1, 1, 1], trajectory=name),
    ]


def batch(items, unit="group", method="grpo"):
    """`items`: {key: [BatchTrajectory, ...]}."""
    made = [BatchItem(key=key, trajectories=members) for key, members in items.items()]
    return Batch(batch_id="bat_1", consumer="c", epoch=7, deadline=0.0, unit=unit, method=method, items=made)


def two_groups():
    """Two groups of two: runs of one chain each."""
    return batch(
        {
            "g1": [member("a", said("a", "Left."), 1.0), member("b", said("b", "Right."), 0.0)],
            "g2": [
                member("c", [step("c-0", [5, 5, 5, 5], [6, 7], trajectory="c")], 0.25, status="truncated"),
                member("d", [step("d-0", [5, 5, 5, 5], [8], trajectory="d")], 0.75),
            ],
        }
    )


def with_forks():
    """One group of two, one of which forked and broke."""
    return batch({"g1": [member("f", forked("f"), 1.0), member("a", said("a", "Left."), 0.0)]})


@st.composite
def trees(draw, name="t"):
    """A trajectory of up to 7 steps, of which each goes on from an earlier one or begins anew, with few ids, so that
    prompts also extend others by chance.
    """
    ids = st.lists(st.integers(0, 2), min_size=1, max_size=3)
    steps = []
    for number in range(draw(st.integers(1, 7))):
        parent = draw(st.sampled_from([None, *steps]))
        prompt = draw(ids)
        if parent is not None:
            prompt = [*parent.prompt_ids, *parent.response_ids, *draw(st.lists(st.integers(0, 2), max_size=2))]
        reply = draw(ids)
        mask = draw(st.none() | st.lists(st.integers(0, 1), min_size=len(reply), max_size=len(reply)))
        heat = draw(st.sampled_from([1.0, 1.0, 1.0, 0.5]))
        steps.append(
            step(f"{name}-{number}", prompt, reply, trajectory=name, response_mask=mask, space="temperature",
                 parent_step_id=parent and parent.step_id, sampling=Sampling(temperature=heat), version=number,
                 logprobs=[-(number + 1) - 0.25 * place for place in range(len(reply))])
        )  # fmt: skip
    return member(name, steps, draw(st.sampled_from([0.0, 0.5, 1.0])))


def marked(each):
    """(step, place in its reply) of every sampled token of a trajectory."""
    found = []
    for one in each.steps:
        mask = one.response_mask or [1] * len(one.response_ids)
        found += [(one.step_id, int(place)) for place in np.flatnonzero(mask)]
    return found
