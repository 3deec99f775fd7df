"""The workload of measurements is what it says: seeded, prefixes that grow, names that stay apart."""

import msgspec
import numpy as np

from agentworld.testing.workload import OPENING_IDS, flat_bytes, in_turn_order, tool_trajectories


def plain(steps):
    """Steps with lists in place of arrays, encoded."""
    names = ("prompt_ids", "response_ids", "response_logprobs")
    return [
        msgspec.json.encode(msgspec.structs.replace(step, **{name: getattr(step, name).tolist() for name in names}))
        for step in steps
    ]


def test_each_turn_continues_the_one_before():
    for steps in tool_trajectories(tasks=2, rollouts=2, turns=3, new_ids=100):
        for number, step in enumerate(steps):
            assert (len(step.prompt_ids), len(step.response_ids)) == (OPENING_IDS + 100 * number, 50)
            assert len(step.response_logprobs) == 50
            assert step.usage.prompt_tokens == len(step.prompt_ids)
            if number:
                before = steps[number - 1]
                said = np.concatenate([before.prompt_ids, before.response_ids])
                assert np.array_equal(step.prompt_ids[: len(said)], said)
                assert step.prompt_messages[:-1] == [*before.prompt_messages, before.response_message]
                assert step.parent_step_id == before.step_id


def test_rollouts_of_a_task_share_their_opening_and_nothing_else():
    first, second, other = list(tool_trajectories(tasks=2, rollouts=2, turns=1))[:3]
    assert np.array_equal(first[0].prompt_ids, second[0].prompt_ids)
    assert first[0].prompt_messages == second[0].prompt_messages
    assert first[0].response_message != second[0].response_message
    assert not np.array_equal(first[0].prompt_ids, other[0].prompt_ids)
    assert first[0].prompt_messages[0] == other[0].prompt_messages[0]


def test_a_seed_says_everything():
    def made(seed):
        return [line for steps in tool_trajectories(1, 2, 2, 64, seed) for line in plain(steps)]

    assert made(3) == made(3)
    assert made(3) != made(4)


def test_names_are_unique_and_turns_interleave():
    work = list(tool_trajectories(tasks=2, rollouts=3, turns=4, new_ids=10, texts=False))
    ordered = list(in_turn_order(work))
    assert len({step.step_id for step in ordered}) == 24
    assert [step.trajectory_id for step in ordered[:6]] == [steps[0].trajectory_id for steps in work]
    assert all(step.prompt_messages is None and step.tools is None for step in ordered)


def test_flat_bytes_count_ids_log_probabilities_and_messages():
    [[step]] = tool_trajectories(1, 1, 1, 100)
    messages = msgspec.json.encode([*step.prompt_messages, step.response_message])
    assert flat_bytes(step) == 4 * (OPENING_IDS + 50) + 4 * 50 + len(messages)
