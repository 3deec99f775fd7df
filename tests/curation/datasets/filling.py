"""Trajectories of every kind that a version may freeze; the same in every pool."""

from agentworld.records import (
    CurationPolicy,
    Exchange,
    Feedback,
    FunctionCall,
    Message,
    NewTrajectory,
    Policy,
    Reward,
    Sampling,
    Step,
    ToolCall,
)

TOOL = {"type": "function", "function": {"parameters": {"type": "object"}, "name": "add"}}
AT = 1_700_000_000.0
POLICY = CurationPolicy(rules=("when trajectory_id == 't4' then weight 2",), name="weighing")


def user(text):
    return Message(role="user", content=text)


def run(pool, name, *, steps=2, reward=0.5, task=None, text=None, status="finished", changes=None, **new):
    """A conversation of so many steps that has ended, unless `status` is None; returns the ids of its steps."""
    pool.create_trajectory(NewTrajectory(trajectory_id=name, task=task, **new))
    said, ids, sent = [Message(role="system", content="rules"), user(text or f"What is it, {name}?")], [1, 2, 3], []
    for number in range(steps):
        reply = Message(role="assistant", content=f"{name} says {number}", reasoning="why" if number else None)
        fields = {
            "step_id": f"{name}-{number}",
            "trajectory_id": name,
            "parent_step_id": sent[-1].step_id if sent else None,
            "prompt_messages": list(said),
            "response_message": reply,
            "prompt_ids": list(ids),
            "response_ids": [10, number],
            "response_logprobs": [-0.5, None],
            "tools": [TOOL],
            "token_source": "submitted",
            "policy": Policy("m", "r", 1),
            "model": "m",
            "sampling": Sampling(temperature=0.7),
            "finish_reason": "stop",
            "channel": new.get("channel", "train"),
            **(changes or {}),
        }
        sent.append(Step(**fields))
        said += [reply, user("And then?")]
        ids += [10, number, 4]
    assert {one.outcome for one in pool.append_steps(sent)} <= {"stored"}
    if status is not None:
        pool.complete_trajectory(name, status, reward)
    return [one.step_id for one in sent]


def fill(pool):
    """Ten trajectories, five of them of the same tasks as others; what people said of them; odd texts and numbers."""
    for number in range(6):
        run(pool, f"t{number}", task={"task_id": number // 2, "task_set": "sums"}, reward=number / 10)
    run(pool, "odd", text="a\0b \ud800 \U00100001 \ud83d\ude00", reward=1.0, changes={"response_mask": [1, 0]})
    parts = {"prompt_messages": None, "response_message": None, "tools": None}
    run(pool, "ids-only", steps=1, changes=parts, reward=0.9)
    texts = dict.fromkeys(("prompt_ids", "response_ids", "response_logprobs"))
    call = Message(role="assistant", content="", tool_calls=(ToolCall("c", FunctionCall("add", "[1")),))
    run(pool, "text-only", changes={**texts, "token_source": "none", "response_message": call}, reward=0.8)
    pool.append_exchange(
        Exchange(
            exchange_id="call",
            trajectory_id="called",
            dialect="chat",
            model="m",
            requested_model="any",
            messages=[user("What is called?")],
            tools=[TOOL],
            policy=Policy("m", "r", 1),
            created_at=AT,
            latency_ms=12.0,
            choices=[
                Step(step_id=f"called-{at}", trajectory_id="called", choice_index=at, response_ids=[5, at],
                     prompt_ids=[1], response_message=Message(role="assistant", content=f"choice {at}"),
                     token_source="engine")
                for at in range(2)
            ],
        )
    )  # fmt: skip
    pool.complete_trajectory("called", "finished", 0.7)
    pool.add_rewards([
        Reward(value=-0.0, name="style", trajectory_id="t1", source="judge"),
        Reward(value=2, name="tests", step_id="t1-0", source="checker"),
    ])  # fmt: skip
    pool.add_feedback([
        Feedback(kind="label", feedback_id="f1", trajectory_id="t2", name="good",
                 value={"b": 1, "a": [0.5]}, created_at=AT),
        Feedback(kind="label", feedback_id="f2", step_id="t2-1", name="cut", value="x\0 \ud800", created_at=AT),
        Feedback(kind="comparison", feedback_id="f3", trajectory_id="t3", other_id="t2", value=2, comment="better",
                 created_at=AT + 2),
        Feedback(kind="rating", feedback_id="f4", step_id="t3-0", value=0.25, created_at=AT + 1),
    ])  # fmt: skip
    pool.set_curation(POLICY)
