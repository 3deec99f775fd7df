"""Rows of chat: OpenAI's fine-tuning, ShareGPT's family, ADP and ToolBench."""

import json
from pathlib import Path

import pytest

from agentworld.ingest.files import BytesEntry
from agentworld.ingest.format import Head
from agentworld.ingest.formats import get_format
from agentworld.ingest.reading import read_path
from agentworld.records import MediaPart, TextPart

FIXTURES = Path(__file__).parent / "fixtures"


def read(name, *rows):
    notes = []
    data = "\n".join(map(json.dumps, rows)).encode()
    return list(get_format(name).runs([BytesEntry(data, "t.jsonl")], notes.append)), notes


def said(run):
    """The last reply with all before it, as roles and texts."""
    return [
        (message.role, message.text) for message in [*run.steps[-1].prompt_messages, run.steps[-1].response_message]
    ]


def test_null_and_empty_contents_differ_and_arguments_stay_text():
    (_, run, *_), notes = read_path("auto", FIXTURES / "openai-fine-tuning" / "chat.jsonl")
    calls = run.steps[0].response_message.tool_calls
    assert run.steps[0].response_message.content is None
    assert [call.function.arguments for call in calls] == ['"{\\"gate\\": \\"north\\"}"', '{"gate": ']
    assert [message.content for message in run.steps[1].prompt_messages[2:]] == ["open", ""]
    assert run.steps[0].sampling.parallel_tool_calls is True
    assert [note.lost for note in notes if "JSON within JSON" in note.why] == [False]


def test_functions_and_calls_of_the_older_kind():
    runs, _ = read_path("auto", FIXTURES / "openai-fine-tuning" / "chat.jsonl")
    old = runs[4]
    call = old.steps[0].response_message.tool_calls[0]
    result = old.steps[1].prompt_messages[-1]
    assert (call.id, result.role, result.tool_call_id, result.name) == ("call_0", "tool", "call_0", "weather")
    assert old.steps[0].tools == [
        {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}
    ]


@pytest.mark.parametrize(
    ("name", "row"),
    [
        (
            "openai-fine-tuning",
            {
                "input": {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]},
                "preferred_output": [{"role": "assistant", "content": "good"}],
                "non_preferred_output": [{"role": "assistant", "content": "bad"}],
            },
        ),
        (
            "sharegpt",
            {
                "conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}],
                "chosen": {"from": "gpt", "value": "good"},
                "rejected": {"from": "gpt", "value": "bad"},
            },
        ),
    ],
)
def test_preferences_are_branches_with_a_comparison(name, row):
    (run,), notes = read(name, row)
    lines = [(step.step_id, step.parent_step_id, step.fork_reason, step.response_message.text) for step in run.steps]
    assert lines == [("0", None, None, "b"), ("1", "0", None, "good"), ("2", "0", "parallel", "bad")]
    assert run.steps[1].prompt_messages == run.steps[2].prompt_messages
    (compared,) = run.feedback
    assert (compared.kind, compared.step, compared.other) == ("comparison", "1", "2")
    assert not notes


def test_whole_conversations_part_where_they_differ():
    call = {"role": "assistant", "content": "x", "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}
    talk = [{"role": "user", "content": "q"}, call, {"role": "user", "content": "r"}]
    good, bad = ([*talk, {"role": "assistant", "content": text}] for text in ("good", "bad"))
    lines = [(None, "x", 1), ("0", "good", 3), ("0", "bad", 3)]
    # What is asked is in them already, wherever else the row has it.
    for more in (
        {}, {"prompt": "q"}, {"prompt": "r"}, {"messages": good}, {"prompt": talk}, {"prompt": "q", "messages": good},
        {"messages": talk}, {"messages": bad}, {"conversations": talk[:1]},
    ):  # fmt: skip
        (run,), notes = read("sharegpt", {**more, "chosen": good, "rejected": bad, "score_chosen": 8.5})
        assert [(s.parent_step_id, s.response_message.text, len(s.prompt_messages)) for s in run.steps] == lines, more
        assert [(r.name, r.value, r.step) for r in run.rewards] == [("score", 8.5, "1")]
        assert not notes
        assert not run.metadata
    # What is in neither is kept; answers to another question are answers.
    (run,), _ = read("sharegpt", {"prompt": "q", "instruction": "Be kind", "chosen": good, "rejected": bad})
    assert run.metadata == {"row": {"instruction": "Be kind"}}
    (run,), _ = read("sharegpt", {"system": "s", "messages": [*talk[:2]], "chosen": good[2:], "rejected": bad[2:]})
    assert [len(step.prompt_messages) for step in run.steps] == [2, 4, 4]
    (run,), _ = read("sharegpt", {"system": "s", "messages": talk, "chosen": good[2:], "rejected": bad[2:]})
    assert [len(step.prompt_messages) for step in run.steps] == [2, 4, 4]


def test_calls_and_results_out_of_tags_and_texts():
    runs, _ = read_path("auto", FIXTURES / "sharegpt" / "tools.json")
    listed, tagged, broken = runs[1], runs[3], runs[2]
    assert [c.function.arguments for c in listed.steps[0].response_message.tool_calls] == [
        '{"place":"Dale"}',
        '{"place": "Esk"}',
    ]
    assert [m.tool_call_id for m in listed.steps[1].prompt_messages[2:]] == ["call_0", "call_1"]
    assert tagged.steps[0].response_message.content == "I ask."
    assert [m.text for m in tagged.steps[1].prompt_messages[3:]] == ["early", "late"]
    # What cannot be taken apart stays text.
    assert broken.steps[0].response_message.text == "tide(Bree"
    half = '<tool_call>{"name": "a"}</tool_call><tool_call>{'
    (kept,), _ = read("sharegpt", {"conversations": [{"from": "human", "value": "?"}, {"from": "gpt", "value": half}]})
    assert kept.steps[0].response_message.text == half


@pytest.mark.parametrize("name", ["openai-fine-tuning", "sharegpt"])
def test_blocks_of_anthropic_are_calls_results_thoughts_and_pictures(name):
    png = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
    use = {"type": "tool_use", "id": "tu", "name": "f", "input": {"a": 1}}
    think = {"type": "thinking", "thinking": "Hm.", "signature": "x"}
    result = {"type": "tool_result", "tool_use_id": "tu", "content": [{"type": "text", "text": "TR"}, png]}
    empty = {"type": "tool_result", "tool_use_id": "tv", "is_error": True}
    talk = [
        {"role": "user", "content": [png, {"type": "text", "text": "q"}]},
        {"role": "assistant", "content": [think, {"type": "text", "text": "t"}, use, {**use, "id": "tv"}]},
        {"role": "user", "content": [{"type": "text", "text": "more"}, result, empty]},
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [{**result, "content": "r"}]},
        {"role": "assistant", "content": "x"},
    ]
    (run,), notes = read(name, {"messages": talk})
    assert not notes
    first, called, end = (step.response_message for step in run.steps)
    assert (first.content, first.reasoning, called.content, end.content) == ("t", "Hm.", None, "x")
    assert [(c.id, c.function.name, json.loads(c.function.arguments)) for c in first.tool_calls] == [
        ("tu", "f", {"a": 1}), ("tv", "f", {"a": 1}),
    ]  # fmt: skip
    lines = [(m.role, m.text, len(m.media), m.tool_call_id) for m in run.steps[2].prompt_messages]
    assert lines == [
        ("user", "q", 1, None), ("assistant", "t", 0, None), ("tool", "TR", 1, "tu"), ("tool", "error", 0, "tv"),
        ("user", "more", 0, None), ("assistant", "", 0, None), ("tool", "r", 0, "tu"),
    ]  # fmt: skip
    assert {media_type for _, media_type in run.media.values()} == {"image/png"}
    assert "is_error" in json.dumps(run.metadata["messages"])


@pytest.mark.parametrize("name", ["openai-fine-tuning", "sharegpt"])
def test_fields_of_messages_that_are_not_known_stay(name):
    text = {"type": "reasoning.text", "text": "RD"}
    custom = {"id": "c2", "type": "custom", "custom": {"name": "shell", "input": "ls -l"}}
    talk = [
        {"role": "user", "mood": "sad"},
        {"role": "assistant", "content": "x", "reasoning_details": [text], "logprobs": [-0.5], "score": 3},
        {"role": "user", "content": ""},
        {"role": "assistant", "content": None, "reasoning": "R", "reasoning_details": [{**text, "signature": "s"}]},
        {"role": "assistant", "content": None, "tool_calls": [custom]},
    ]
    (run,), notes = read(name, {"messages": talk})
    assert not [note for note in notes if note.lost]
    assert [message.content for message in run.steps[1].prompt_messages] == [None, "x", ""]
    assert [step.response_message.reasoning for step in run.steps] == ["RD", "R\nRD", None]
    (call,) = run.steps[2].response_message.tool_calls
    assert (call.id, call.function.name, call.function.arguments) == ("c2", "shell", "ls -l")
    kept = json.dumps([run.metadata, [step.metadata for step in run.steps]])
    assert all(each in kept for each in ('"sad"', "-0.5", '"score": 3', '"signature": "s"'))
    assert kept.count("RD") == 1
    if name == "sharegpt":
        assert run.steps[0].metadata == {"message": {"logprobs": [-0.5], "score": 3}}


def test_names_of_models_are_the_assistants_and_unknown_ones_are_told():
    tags = ("human", "bing", "thought", "bard", "human", "thought", "Claude", "thought", "human", "critic", "thought")
    (run,), notes = read("sharegpt", {"conversations": [{"from": tag, "value": f"{n}"} for n, tag in enumerate(tags)]})
    replies = [(step.response_message.content, step.response_message.reasoning) for step in run.steps]
    assert replies == [("1", None), ("3", "2"), ("6", "5"), (None, "7"), (None, "10")]
    assert [(note.place, note.lost, "'critic'" in note.why) for note in notes] == [
        ("line 1.conversations[9].role", True, True)
    ]


def test_images_take_the_place_of_their_marks():
    (marked, unmarked, parts), _ = read_path("auto", FIXTURES / "sharegpt" / "images.jsonl")
    kinds = [type(part) for part in marked.steps[0].prompt_messages[0].content]
    assert kinds == [MediaPart, TextPart, MediaPart, TextPart]
    assert [type(part) for part in unmarked.steps[0].prompt_messages[0].content] == [MediaPart, TextPart]
    assert parts.steps[0].response_message.tool_calls[0].function.name == "look"
    assert parts.media[parts.steps[0].prompt_messages[0].content[0].digest] == (b"dots/2.png", "text/uri-list")


def test_flags_weights_and_scores_are_labels_and_rewards():
    (yes, no), _ = read_path("auto", FIXTURES / "sharegpt" / "kto.jsonl")
    assert [(f.kind, f.name, f.value, f.step) for f in (*yes.feedback, *no.feedback)] == [
        ("label", "label", True, "0"), ("label", "label", False, "1"),
    ]  # fmt: skip
    assert no.metadata == {"row": {"source": "a shelf"}}
    (row,), _ = read_path("auto", FIXTURES / "sharegpt" / "agent_instruct.json")
    assert [(f.name, f.value, f.step) for f in row.feedback] == [
        ("training_weight", 0, "0"),
        ("training_weight", 1, "1"),
    ]


@pytest.mark.parametrize(
    ("columns", "rewards"),
    [
        ({"reward": "0.5"}, [("reward", 0.5, None)]),
        ({"rewards": {"style": 1, "truth": "0.25"}}, [("style", 1.0, None), ("truth", 0.25, None)]),
        ({"rewards": {"a\ud800\0": 1, "": 2}}, [("a", 1.0, None), ("rewards", 2.0, None)]),
        ({"rewards": [0, 1.5]}, [("reward", 0.0, "0"), ("reward", 1.5, "1")]),
        ({"scores": [1, 2, 3]}, []),
        ({"reward": "good"}, []),
    ],
)
def test_rewards_as_texts_objects_and_lists(columns, rewards):
    talk = [{"from": "human", "value": "q"}, {"from": "gpt", "value": "x"}, {"from": "gpt", "value": "y"}]
    (run,), _ = read("sharegpt", {"conversations": talk, **columns})
    assert [(reward.name, reward.value, reward.step) for reward in run.rewards] == rewards
    assert rewards or run.metadata == {"row": columns}


def test_a_description_beside_the_file_names_columns_and_roles():
    (quiz, talk, _), notes = read_path("auto", FIXTURES / "sharegpt" / "described")
    assert said(quiz) == [("user", "How many legs has a stool?"), ("assistant", "Three.")]
    assert said(talk) == [("user", "May I?"), ("assistant", ""), ("tool", "yes"), ("assistant", "You may.")]
    assert not [note for note in notes if note.lost]
    row = json.loads((FIXTURES / "sharegpt" / "described" / "talks.jsonl").read_text().splitlines()[0])
    (alone,), _ = read("sharegpt", row)
    # Without it nobody knows who the host is.
    assert alone.steps == []


def test_alpaca_and_prompts_with_history():
    (add, again, *_), _ = read_path("auto", FIXTURES / "sharegpt" / "alpaca.jsonl")
    assert said(add) == [("user", "Add the numbers.\n1 2"), ("assistant", "3")]
    assert [text for _, text in said(again)] == ["Be exact.", "Add 1 and 2.", "3", "Say it again.", "3"]


def test_actions_and_observations():
    (mill, wheel), _ = read_path("auto", FIXTURES / "adp" / "actions.json")
    assert [role for role, _ in said(mill)] == [
        "system", "user", "assistant", "assistant", "tool", "assistant", "tool", "user", "assistant",
    ]  # fmt: skip
    code = mill.steps[2].response_message
    assert (code.content, code.reasoning) == ("Now the corn.", "It must be dry.")
    assert (code.tool_calls[0].function.name, code.tool_calls[0].function.arguments) == (
        "bash",
        '{"code":"grind corn\\n"}',
    )
    assert {(r.name, r.value, r.step) for r in mill.rewards} == {("reward", 0.25, "1"), ("score", 1.0, None)}
    assert [m.tool_call_id for m in wheel.steps[-1].prompt_messages if m.role == "tool"] == ["b", "a"]
    assert [m.name for m in wheel.steps[-1].prompt_messages[-2:]] == [None, "agent"]


def test_a_search_tree_keeps_its_failed_branches():
    (run,), _ = read_path("auto", FIXTURES / "toolbench" / "search.json")
    assert [(s.parent_step_id, s.fork_reason, s.response_message.content) for s in run.steps] == [
        (None, None, "First the ferry."), ("0", None, None), ("0", "retry", "Perhaps a barge."),
        ("2", None, "I know enough."), (None, "retry", None),
    ]  # fmt: skip
    assert run.steps[1].response_message.tool_calls[0].function.arguments == '{"kind": '
    assert run.steps[1].metadata == {"pruned": True, "observation_code": 11}
    assert run.metadata["trailing_after"] == ["1", "4"]
    (given_up,), _ = read_path("auto", FIXTURES / "toolbench" / "chain.json")
    assert [(s.parent_step_id, s.response_message.content) for s in given_up.steps] == [
        (None, None), ("0", "None."), (None, "I give up."),
    ]  # fmt: skip


def test_calls_that_a_file_cuts_off_keep_what_is_there():
    (whole, cut, _), notes = read_path("auto", FIXTURES / "toolbench" / "evaluated.json")
    assert whole.steps[0].response_message.content == "I look."
    assert whole.steps[1].prompt_messages[-1].text == 'it\'s there: "two"'
    assert whole.task == {"task_id": "17", "prompt": "Which boat?"}
    assert cut.steps[0].response_message.tool_calls[0].function.arguments == '{"kind": "ferry\\n"}'
    assert cut.steps[1].response_message.tool_calls[0].function.arguments == '{"kind": "a very long na'
    assert sum("only the beginning" in note.why for note in notes) == 2


def test_preferences_as_dialogues_of_paragraphs():
    asked = "\n\nHuman: a\n\nstill a\n\nAssistant: b: Human: no\n\nHuman: c"
    row = {"chosen": f"{asked}\n\nAssistant: good", "rejected": f"{asked}\n\nAssistant: bad"}
    (run,), notes = read("sharegpt", row)
    assert get_format("sharegpt").claims(Head(name="a.jsonl", shape="jsonl", documents=(row,)))
    before = [("user", "a\n\nstill a"), ("assistant", "b: Human: no"), ("user", "c")]
    assert [step.response_message.text for step in run.steps] == ["b: Human: no", "good", "bad"]
    assert said(run) == [*before, ("assistant", "bad")]
    assert [(each.kind, each.step, each.other) for each in run.feedback] == [("comparison", "1", "2")]
    assert not [note for note in notes if note.lost]
    # A prompt that ends where the assistant is to speak, with answers of their own.
    (run,), _ = read("sharegpt", {"prompt": "Human: a\n\nAssistant:", "chosen": "good", "rejected": "bad"})
    assert [step.response_message.text for step in run.steps] == ["good", "bad"]
    assert [message.text for message in run.steps[0].prompt_messages] == ["a"]
