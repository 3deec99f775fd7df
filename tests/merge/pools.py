"""A small pool whose sequences share beginnings in every way: turns, rollouts, a retold history, two vocabularies."""

from agentworld.records import NewTrajectory, Policy, Step

SYSTEM = list(range(100, 140))
TASK = list(range(200, 260))
# Of the group: turns of each rollout; the last of the third tells the history anew.
TURNS = {"g-0": [7, 8, 9], "g-1": [10, 11], "g-2": [12, 13, 14]}


def filled(pool):
    """Fill it, and return it: the group `g`, `alone` of another vocabulary, and what is not read."""
    for name, turns in TURNS.items():
        pool.create_trajectory(NewTrajectory(trajectory_id=name, group_id="g", group_size=3))
        said = SYSTEM + TASK
        for number, token in enumerate(turns):
            is_retold = name == "g-2" and number == 2
            prompt = [*said[:-7], token, token, token] if is_retold else said
            reply = [token] * 5
            pool.append_steps([_step(name, number, prompt, reply, fork_reason="template" if is_retold else None)])
            said = prompt + reply + [60 + number] * 4
        pool.complete_trajectory(name, "finished", float(len(turns)))
    pool.create_trajectory(NewTrajectory(trajectory_id="alone"))
    pool.append_steps([_step("alone", 0, SYSTEM, [1, 2, 3], vocabulary="other")])
    pool.append_steps([Step(step_id="text", trajectory_id="alone", prompt_messages=[], token_source="none")])
    # One log-probability less than ids: quarantined.
    pool.append_steps([_step("alone", 2, SYSTEM, [1, 2, 3], response_logprobs=[-0.5, -0.5])])
    pool.complete_trajectory("alone", "finished", 1.0)
    return pool


def _step(name, number, prompt, reply, **changes):
    fields = {
        "step_id": f"{name}-{number}", "trajectory_id": name, "prompt_ids": prompt, "response_ids": reply,
        "response_mask": [0] + [1] * (len(reply) - 1),
        "response_logprobs": [-0.25 * (1 + place) for place in range(len(reply))],
        "logprob_space": "raw", "token_source": "submitted", "vocabulary": "own", "model": "m",
        "policy": Policy(model="m", run="r", version=number),
    }  # fmt: skip
    return Step(**{**fields, **changes})
