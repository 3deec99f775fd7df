"""Prompts of verl are played on its own client, and come back as what the pool has on record."""

import asyncio

import pytest

from agentworld.errors import EngineError, InvalidRequestError
from agentworld.records import Sampling
from agentworld.tasks.base import Observation
from agentworld.tasks.definition import task_set_from
from agentworld.verl_loop.bridge import VerlBackend
from agentworld.verl_loop.playing import play_prompt, prompt_row, task_of
from agentworld.verl_loop.rows import loop_rows, origin
from agentworld.verl_loop.settings import LoopSettings
from agentworld.verl_loop.station import Engines, Station
from tests.verl_loop.agents import FORGETFUL
from tests.verl_loop.engines import TOKENIZER, ScriptedClient

CALL = '<tool_call>\n{"name": "look", "arguments": {}}\n</tool_call>'
LOOK = {"type": "function", "function": {"name": "look", "description": "Look", "parameters": {"type": "object"}}}


class Room:
    """One tool."""

    tools = (LOOK,)

    def reset(self):
        pass

    def step(self, name, arguments):
        return Observation("left")

    def close(self):
        pass


def rooms(task):
    return Room()


@pytest.fixture
def play(tmp_path):
    """`play(client, **settings)` plays the one task; its Played, and the station."""
    (tmp_path / "doors.jsonl").write_text('{"prompt": "Where is it?", "reference": "left", "id": "d1"}\n')
    table = {"file": str(tmp_path / "doors.jsonl"), "heldout": 0.0, "environment": f"{__name__}:rooms"}
    stations = []

    def played(client, judged=True, columns=None, **changed):
        settings = LoopSettings(
            **{"pool": f"sqlite:///{tmp_path}/pool.db", "task_set": table if judged else None, **changed}
        )
        if not stations:
            stations.append(Station(settings, client.generate, Engines("pocket", 4096, "processed_logprobs")).start())
        (task,) = task_set_from(table).tasks(1)
        row = prompt_row(task, 0)
        fields = {**row, "raw_prompt": row["prompt"], "uid": "u1", "session_id": 0, **(columns or {})}
        work = play_prompt(
            settings,
            stations[0],
            settings.the_agent(),
            settings.the_task_set(),
            fields,
            rollouts=2,
            sampling=Sampling(temperature=0.7),
            logprobs=True,
        )
        return asyncio.run(work), stations[0]

    yield played
    for station in stations:
        station.stop()


def rows_of(batch, **changed):
    wanted = {"prompt_length": 400, "response_length": 400, "logprobs": True, "several": "all", "temperature": 0.7}
    return loop_rows(batch, **{**wanted, **changed})


def test_turns_with_a_tool_are_one_row_of_what_was_sampled(play):
    client = ScriptedClient(lambda prompt, call: CALL if call == 0 else "left")
    played, station = play(client)
    first, second = client.calls
    (row,) = rows_of(played.batch)
    assert row.prompt_ids == first.prompt_ids
    assert row.prompt_ids + row.response_ids == second.prompt_ids + second.ids
    between = len(second.prompt_ids) - len(first.prompt_ids) - len(first.ids)
    assert row.response_mask == [1] * len(first.ids) + [0] * between + [1] * len(second.ids)
    assert row.response_logprobs == pytest.approx([*first.logprobs, *[0.0] * between, *second.logprobs])
    assert (row.num_turns, row.versions, row.cut, played.reward) == (4, (3, 3), 0, 1.0)
    assert first.request_id == second.request_id
    assert first.sampling["temperature"] == 0.7
    assert station.pool.gateway_state().policies["policy"].version == 3
    # Leased, so that nobody else of this consumer has it, and acknowledged with a checkpoint.
    assert station.pool.get_batch(played.batch.batch_id).state == "leased"
    trajectory = station.pool.get_trajectory(origin(played.batch, row, 0, 1)["trajectory_id"])
    assert (trajectory.group_id, trajectory.group_size, trajectory.rollout_index) == ("verl:u1", 2, 0)
    assert trajectory.task["reference"] == "left"
    # As verl's own loops do, what is longer than its configuration is cut, and prompts are not.
    (short,) = rows_of(played.batch, response_length=len(first.ids) + between + 1)
    assert (short.response_mask, short.cut) == (row.response_mask[: 1 - len(second.ids)], len(second.ids) - 1)
    with pytest.raises(InvalidRequestError, match=r"a prompt of .* ids where 3 fit"):
        rows_of(played.batch, prompt_length=3)
    with pytest.raises(InvalidRequestError, match=r"at temperature 0\.7, and the trainer's is 1"):
        rows_of(played.batch, temperature=1.0)


def test_a_reply_that_new_weights_cut_is_one_step_of_both(play):
    def script(prompt, call):
        client.version = 4 + call
        return ("le", "aborted") if call == 0 else "ft"

    client = ScriptedClient(script)
    played, station = play(client)
    (row,) = rows_of(played.batch)
    assert TOKENIZER.decode(row.response_ids[:-1]) == "left"
    assert row.versions == (4, 5)
    (step,) = played.batch.items[0].trajectories[0].steps
    assert [(span.start, span.version) for span in step.version_spans] == [(0, 4), (len(client.calls[0].ids), 5)]
    assert station.pool.gateway_state().policies["policy"].version == 5


def test_each_broken_prompt_begins_a_row_and_what_a_command_asks_for_does_not_count(play):
    agent = {"kind": "command", "command": ["{python}", "-c", FORGETFUL], "timeout": 60}
    client = ScriptedClient(lambda prompt, call: "left", version=0)
    played, _ = play(client, agent=agent)
    rows = rows_of(played.batch, temperature=0.3)
    assert [row.response_ids for row in rows] == [call.ids for call in client.calls]
    assert [row.prompt_ids for row in rows] == [call.prompt_ids for call in client.calls]
    assert len({call.request_id for call in client.calls}) == 2
    with pytest.raises(InvalidRequestError, match="is 2 rows"):
        rows_of(played.batch, temperature=0.3, several="refuse")
    assert rows_of(played.batch, temperature=0.3, several="last") == rows[1:]


def test_a_conversation_has_the_name_of_its_longest_opening(monkeypatch):
    monkeypatch.setattr("agentworld.verl_loop.bridge.REMEMBERED", 2)
    bridge = VerlBackend(None, TOKENIZER, model="policy", run="run", context=400, mode="")
    first, other = bridge.request_id([1, 2, 3]), bridge.request_id([9])
    assert first != other
    assert bridge.request_id([1, 2, 3, 4]) == bridge.request_id([1, 2, 3, 5, 6]) == first
    assert bridge.request_id([9, 1, 2, 3]) == other
    assert bridge.request_id([1, 2]) not in (first, other)  # Of those before it knows two: 1, 2, 3 is forgotten.
    assert bridge.request_id([1, 2, 3, 4]) == bridge.request_id([1, 2])
    assert bridge.request_id([9, 9]) == other


def test_without_a_checker_verl_judges_and_held_out_prompts_are_not_leased(play):
    client = ScriptedClient(lambda prompt, call: "right")
    plain = {"extra_info": {"split": "test", "index": 7}, "data_source": "doors"}
    played, _ = play(client, judged=False, columns=plain)
    assert played.reward is None
    assert played.batch.batch_id == ""
    (row,) = rows_of(played.batch)
    assert row.response_ids == client.calls[0].ids
    assert origin(played.batch, row, 0, 1)["batch_id"] is None
    trajectory = played.batch.items[0].trajectories[0].trajectory
    assert (trajectory.channel, trajectory.readiness, trajectory.task["task_id"]) == ("val", "complete", "7")
    again, _ = play(client, judged=False, columns={"extra_info": {"split": "train"}})
    assert again.batch.batch_id
    with pytest.raises(InvalidRequestError, match="cannot be read as messages of text"):
        task_of({"raw_prompt": [{"role": "user", "content": [{"type": "video", "video": "x"}]}]})


def test_engines_that_fail_void_the_attempts_and_say_why(play):
    def script(prompt, call):
        raise RuntimeError("No available servers in load balancer")

    with pytest.raises(EngineError, match=r"no attempt at task d1 came to an end: .*No available servers"):
        play(ScriptedClient(script), attempts=1, agent={"kind": "loop", "timeout": 3})
