"""tau-bench, tau2, NeMo-Gym and answers with ids: whose turns are steps, exact ids, rewards in all their places."""

import json
from pathlib import Path

import pytest

from agentworld.factory import open_pool
from agentworld.ingest.files import BytesEntry
from agentworld.ingest.formats import get_format
from agentworld.ingest.loader import import_paths
from agentworld.ingest.reading import read_path
from tests.ingest.counting import counts_of
from tests.ingest.shapes import lineage, said

FIXTURES = Path(__file__).parent / "fixtures"


def read(name):
    runs, notes = read_path("auto", FIXTURES / name)
    return runs, [f"{note.place}: {note.why}" for note in notes if note.lost]


def read_bytes(format, value, name="a.json"):
    notes = []
    entry = BytesEntry(json.dumps(value).encode(), name, note=notes.append)
    return list(get_format(format).runs([entry], notes.append)), notes


def test_what_the_customer_calls_is_no_step_and_never_shown_to_the_agent():
    runs, lost = read("tau2/results.json")
    run = runs[0]

    assert lineage(run) == [
        "0 <- -: 2 => assistant(; get_line; get_bill)",  # The greeting before it was written by no model.
        "1 <- 0: 5 => assistant(Please switch airplane mode off.)",
        "2 <- 1: 7 => assistant(Glad to hear that.)",
    ]
    assert [said(message) for message in run.steps[2].prompt_messages[5:]] == [
        "assistant(Please switch airplane mode off.)",
        "user(It works now.)",
    ]
    assert [said(message) for message in run.trailing] == [
        "user(null; toggle_airplane_mode)",
        "tool u1(Airplane mode is now OFF.)",
        "user(###STOP###)",
    ]
    assert run.metadata["user_turns"] == [6, 7]
    assert lost[1:] == ["$.simulations[2]: it is no simulation: it has no messages with a task_id"]


def test_a_step_of_tau2_is_what_the_engine_answered():
    run, failed = read("tau2/results.json")[0]
    step = run.steps[0]

    assert [call.function.arguments for call in step.response_message.tool_calls] == [
        '{"line":"L1"}',
        '{ "line": "L1" }',  # As it was sent, not as the record writes it.
    ]
    assert step.response_message.reasoning == "Look it up."
    assert (step.prompt_ids, step.response_ids, step.response_logprobs) == ([5, 6, 7], [8, 9, 10], [-0.25] * 3)
    assert (step.model, step.latency_ms, step.finish_reason) == ("served", 1500.0, "tool_calls")
    assert step.tools[0]["function"]["name"] == "get_line"
    assert [(reward.name, reward.value) for reward in run.rewards] == [
        ("reward", 0.5), ("reward.DB", 1.0), ("reward.COMMUNICATE", 0.5)
    ]  # fmt: skip
    assert (run.native_id, run.rollout_index, run.task["task_set"]) == (
        "5130e6f0-0000-4000-8000-000000000001", 1, "tau2-phones"
    )  # fmt: skip
    assert (failed.status, failed.rewards, run.group_id == failed.group_id) == ("failed", [], True)


def test_results_of_tau_bench():
    runs, lost = read("tau-bench/results.json")

    assert [[reward.value for reward in run.rewards] for run in runs] == [[1.0], [0.0], [0.0], []]
    assert [run.status for run in runs] == ["finished", "finished", "failed", "finished"]
    assert [message.content for message in runs[0].steps[1].prompt_messages[-2:]] == ["Which one?", "7"]
    assert runs[0].steps[1].response_message.content is None
    assert runs[1].steps[0].response_message.content == ""
    assert runs[0].rewards[0].details["info"]["r_actions"] == 1.0
    assert runs[0].group_id == runs[1].group_id != runs[2].group_id
    assert "$[4]: it is no result of tau-bench: it needs task_id and traj, or messages_display" in lost


def test_displays_of_tau_bench():
    runs, _ = read("tau-bench/displays.jsonl")

    assert lineage(runs[0]) == ["0 <- -: 1 => assistant(null)", "1 <- 0: 3 => assistant(I could not find it.)"]
    assert runs[0].steps[0].prompt_messages[0].content == "Hello\nthere"
    assert runs[0].trailing[0].content == "Thanks: bye"


def test_ids_of_nemo_gym_are_kept_and_what_does_not_go_on_is_a_fork():
    runs, lost = read("nemo-gym/rollouts.jsonl")
    run = runs[0]

    assert lineage(run) == [
        "0 <- -: 2 => assistant(Adding.; add; add)",
        "1 <- 0: 5 => assistant(5 and 9)",
        "2 <- 1 template: 7 => assistant(Still 5 and 9)",
    ]
    assert [(step.prompt_ids, step.response_ids) for step in run.steps] == [
        ([1, 2, 3], [4, 5, 6]),
        ([1, 2, 3, 4, 5, 6, 7, 8], [9, 10]),
        ([1, 2, 3, 99, 98], [11]),
    ]
    assert run.steps[0].response_logprobs == [0.0, -0.125, -0.25]
    assert run.steps[0].response_message.reasoning == "Two sums."
    assert run.steps[0].tools == [
        {
            "type": "function",
            "function": {"name": "add", "parameters": {"type": "object"}, "strict": True, "description": "Adds."},
        }
    ]
    assert (run.steps[0].sampling.temperature, run.steps[0].sampling.max_tokens) == (0.5, 64)
    assert [(reward.name, reward.value) for reward in run.rewards] == [("reward", 1.0), ("library_reward", 0.5)]
    assert [(label.name, label.value) for label in run.feedback] == [("resolved", True)]
    assert run.metadata["expected_answer"] == "5, 9"
    assert [run.status for run in runs] == ["finished", "finished", "truncated", "failed", "finished", "finished"]
    assert lost == ["line 7: it is no rollout of NeMo-Gym: it needs responses_create_params and response"]


def test_a_reply_of_the_input_is_a_step_only_with_ids():
    runs, _ = read("nemo-gym/rollouts.jsonl")

    assert lineage(runs[5]) == ["0 <- -: 1 => assistant(one)", "1 <- 0: 3 => assistant(two)"]
    assert lineage(runs[4])[0] == "0 <- -: 3 => assistant(; get_line; get_bill)"  # The policy, the greeting, the user.
    assert "never kept" not in repr(runs)


def test_a_simulation_of_nemo_gym_keeps_its_task_and_usage():
    turns = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "x"}]
    info = {"reward": None, "db_check": {"db_match": True}}
    result = {"id": "s-1", "task_id": "50", "messages": turns, "reward_info": info, "termination_reason": "user_stop"}
    row = {"responses_create_params": {"input": "q"}, "response": {"output": [], "usage": {"total_tokens": 7}}}
    ((run,), notes) = read_bytes(
        "nemo-gym", {**row, "result": result, "reward": 1.0, "task": {"id": "50"}, "config": {"api_key": "k"}}
    )
    assert not notes
    assert {key: run.metadata[key] for key in ("task", "usage", "simulation_id", "reward_info")} == {
        "task": {"id": "50"}, "usage": {"total_tokens": 7}, "simulation_id": "s-1",
        "reward_info": {"db_check": {"db_match": True}},
    }  # fmt: skip
    assert "config" not in run.metadata


def test_two_texts_are_two_replies_and_tools_of_the_service_are_calls():
    run = read("nemo-gym/rollouts.jsonl")[0][2]

    assert lineage(run) == ["0 <- -: 2 => assistant(I)", "1 <- 0: 3 => assistant(think; add; web_search)"]


def test_ids_and_logprobs_that_disagree_are_kept_and_not_served():
    with open_pool("memory://") as pool:
        report = import_paths(pool, [FIXTURES / "nemo-gym", FIXTURES / "token-ids"])

        assert report.formats["nemo-gym"].excluded == {"quarantined: 1 response_logprobs for 2 response_ids": 1}
        assert report.formats["token-ids"].excluded == {"quarantined: 2 response_logprobs for 1 response_ids": 1}
        group = [t for t in pool.list_trajectories().items if t.task == {"task_id": "4"}]
        assert len(group) == 5


def test_answers_of_engines():
    [first, second, broken], lost = read("token-ids/generate.json")

    step = first.steps[0]
    assert (step.prompt_ids, step.response_ids, step.response_logprobs) == ([1, 2, 3], [4, 5], [-0.5, -1.5])
    assert (step.finish_reason, step.metadata, step.sampling.max_tokens) == ("length", {"weight_version": "v3"}, 8)
    assert (second.steps[0].prompt_ids, second.steps[0].response_ids) == ([8, 9], [6, 7])
    assert (broken.steps[0].prompt_ids, broken.steps[0].response_message.text) == (None, "bad")
    assert [place.partition(":")[0] for place in lost] == ["$[2].response.meta_info.output_token_logprobs"]


def test_choices_are_steps_of_one_exchange():
    runs, lost = read("token-ids/chat.jsonl")

    assert [(s.exchange_id, s.choice_index, s.response_ids, s.response_logprobs) for s in runs[0].steps] == [
        ("0", 0, [4, 5], [-0.5, -0.25]),
        ("0", 1, [6, 5], [-1.5, None]),
    ]
    assert said(runs[1].steps[0].prompt_messages[0]) == "user(Well?)"
    assert runs[2].steps[0].response_ids is None
    assert lost == ["line 3.choices[0].token_ids[1]: a token id cannot be a text; the ids are left out"]


def test_flat_rows_and_conversations_with_ids():
    rows, _ = read("token-ids/flat.jsonl")
    conversations, _ = read("token-ids/conversations.json")

    assert (rows[0].steps[0].response_mask, rows[0].steps[0].response_logprobs) == ([1, 0, 1], [-0.1, -0.2, -0.3])
    assert (rows[1].steps[0].response_mask, rows[1].rewards[0].name) == ([1], "score")
    assert [step.prompt_ids for step in conversations[0].steps] == [[1, 2], [1, 2, 3, 4, 5]]
    assert conversations[0].steps[1].fork_reason is None
    assert [len(run.steps) for run in conversations] == [2, 1, 1]


def test_rollouts_of_trainers():
    [solver, judge, verified, dumped, served], lost = read("token-ids/trainers.jsonl")

    assert lineage(solver) == ["0 <- -: 1 => assistant(b; f)", "1 <- 0: 3 => assistant(e)"]
    assert [(step.prompt_ids, step.response_ids) for step in solver.steps] == [([1, 2], [3]), ([1, 2, 3, 4], [5, 6])]
    assert [(reward.value, reward.step) for reward in solver.rewards] == [(0.25, "0"), (0.5, "1"), (1.0, None)]
    assert (solver.agent, judge.agent, judge.feedback[0].name) == ("solver", "judge", "is_correct")
    assert solver.steps[0].metadata == {"model_response": "raw", "done": False}
    assert [step.fork_reason for step in verified.steps] == [None, "template"]
    assert [len(step.prompt_messages) for step in verified.steps] == [1, 3]
    assert verified.steps[0].response_mask == [1, 1]
    step = dumped.steps[0]
    assert (step.prompt_ids, step.response_ids, step.response_mask) == ([1, 2], [3, 4, 5], [1, 0, 1])
    assert (served.steps[0].prompt_ids, served.steps[0].response_ids) == ([5, 6], [8, 9])
    assert lost == ["line 1.trajectories[2]: it has no calls with ids"]


def test_simulations_in_files_beside_their_results():
    [run, spoken], lost = read("tau2/folder")

    assert (run.task["task_set"], run.agent, run.steps[0].model) == ("tau2-phones", "llm_agent", "served")
    assert (spoken.agent, spoken.status) == ("llm_agent", "failed")
    assert lost == ["$.simulation_index: the simulation gone is in no file beside it"]
    # Each turn where it was begun, though both speak at once; what the user calls, the agent never sees.
    assert [said(message) for message in spoken.steps[-1].prompt_messages] == [
        "user(My phone has no signal.)",
        "assistant(Let me look.; get_line)",
        'tool c1({"state": "roaming off"})',
        "assistant(Is data on?)",
    ]
    assert [said(message) for message in spoken.trailing] == [
        "user(Hm, a moment.; switch)",
        "tool s1(on)",
        "user(Now it works!)",
    ]

    # Without names of utterances, what goes on after others spoke is another turn, unless no tick is between.
    pieces = [("user", "One "), ("agent", "Yes?"), ("user", "two"), ("user", " three")]
    ticks = [{f"{name}_chunk": {"content": text}} for name, text in pieces]
    [run], notes = read_bytes("tau2", {"task_id": "t", "termination_reason": "user_stop", "ticks": [*ticks, 7]})
    assert [said(message) for message in (*run.steps[0].prompt_messages, *run.trailing)] == [
        "user(One )",
        "user(two three)",
    ]
    assert [note.why for note in notes if note.lost] == ["a tick must be an object, not the number 7"]


def test_completions_and_several_answers_to_one_request():
    [completed, first, second], lost = read("token-ids/completions.jsonl")

    step = completed.steps[0]
    assert (step.prompt_ids, step.response_ids, step.response_message.text) == ([1, 2, 3], [4], " four")
    assert [(run.steps[0].prompt_ids, run.steps[0].response_ids) for run in (first, second)] == [([7], [4]), ([7], [5])]
    assert said(first.steps[0].prompt_messages[0]) == "user(Say)"
    assert lost == ["line 2.response[2]: it has no ids of a reply"]


@pytest.mark.parametrize(
    "name",
    ["tau2/results.json", "nemo-gym/rollouts.jsonl", "token-ids/conversations.json", "swe-agent/first_version.traj",
     "swe-agent/rows.jsonl", "swe-agent/no_history.traj", "mini-swe-agent/calls.traj.json"],
)  # fmt: skip
def test_prompts_that_grow_with_the_square_are_bounded_and_nothing_is_dropped(name, monkeypatch):
    whole = counts_of(read(name)[0])
    monkeypatch.setattr("agentworld.ingest.formats.values.MAX_PROMPTS", 1)
    runs, lost = read(name)
    cut = counts_of(runs)

    assert cut.steps < whole.steps
    assert (cut.messages, cut.tool_calls, cut.rewards) == (whole.messages, whole.tool_calls, whole.rewards)
    assert any("prompts hold more than 1 messages together" in why for why in lost)


def test_what_messages_have_besides_is_kept(tmp_path):
    more = {"role": "user", "content": "a", "mood": "calm"}
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"task_id": 1, "traj": [more, {"role": "assistant", "content": "b", "seen": 2}]}))
    (run,), _ = read_path("tau-bench", path)
    assert run.metadata["messages"] == {"0": {"mood": "calm"}, "1": {"seen": 2}}
    row = {"messages": [more], "response_ids": [1, 2], "prompt_ids": [3], "response": [{"role": "assistant", "x": 1}]}
    for given in (row, {"steps": [{**row, "other": 5}]}):
        path.write_text(json.dumps(given))
        (run,), _ = read_path("token-ids", path)
        assert run.steps[0].metadata["messages"] == {"messages[0]": {"mood": "calm"}, "response[0]": {"x": 1}}
