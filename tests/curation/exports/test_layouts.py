"""What each layout makes of trajectories."""

import gc
import json

import msgspec
import pytest

from agentworld.curation.datasets.digests import StepDigests
from agentworld.curation.datasets.frozen import FrozenTrajectory
from agentworld.curation.datasets.reading import rows_of
from agentworld.curation.exports import export_dataset
from agentworld.curation.exports.layouts.steps import AS_IT_IS, STEP, TRAJECTORY
from agentworld.curation.exports.source import VersionSource
from agentworld.errors import ConfigError, InvalidRequestError
from agentworld.records import (
    Decision,
    Feedback,
    MediaPart,
    Message,
    Policy,
    Reward,
    Sampling,
    Splits,
    TextPart,
    Usage,
    VersionSpan,
)  # fmt: skip
from tests.curation.exports.talks import WEATHER, asked, frozen, put, put_weather, result, says, step, user


@pytest.fixture
def export(memory, tmp_path):
    """Export what is in the pool; the rows of the only split, and the report."""
    count = iter(range(100))

    def run(layout, **options):
        version = frozen(memory, **options.pop("selection", {}))
        folder = tmp_path / f"out{next(count)}"
        report = export_dataset(memory, version.version, layout, folder, file_format="jsonl", **options)
        [split] = report.splits.values()
        rows = [json.loads(line) for file in split.files for line in (folder / file).read_text().splitlines()]
        assert len(rows) == report.rows
        for row in rows:
            assert row["agentworld"]["version"] == version.version
        return rows, split.left_out

    return run


def roles(messages):
    return [message["role"] for message in messages]


def test_a_branch_is_one_conversation_with_reasoning_and_calls_as_objects(memory, export):
    put_weather(memory)
    [row], left_out = export("sft")
    assert roles(row["messages"]) == ["system", "user", "assistant", "tool", "assistant"]
    assert row["messages"][2] == {
        "role": "assistant",
        "content": "",
        "reasoning_content": "I look up Ulm.",
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "weather", "arguments": {"town": "Ulm"}}}],
    }
    assert row["messages"][3] == {"role": "tool", "content": "rain", "tool_call_id": "c1"}
    assert row["tools"] == [WEATHER]
    assert row["agentworld"]["trajectory_id"] == "t1"
    assert row["agentworld"]["step_ids"] == ["t1-0", "t1-1"]
    assert left_out == {}


@pytest.mark.parametrize(
    ("thinking", "kept"), [("keep", [True, True]), ("last", [False, True]), ("drop", [False, False])]
)
def test_reasoning_is_kept_dropped_or_kept_in_the_last_reply(memory, export, thinking, kept):
    put_weather(memory)
    [row], _ = export("sft", thinking=thinking)
    assert ["reasoning_content" in each for each in row["messages"] if each["role"] == "assistant"] == kept


def test_arguments_stay_text_on_request_and_what_is_no_object_is_left_out_otherwise(memory, export):
    put_weather(memory)
    first, _, _, _ = asked("Bonn")
    put(memory, "t2", [step("t2", 0, first, says("", None, "{broken"))])
    rows, left_out = export("sft")
    assert [row["agentworld"]["trajectory_id"] for row in rows] == ["t1"]
    assert left_out == {"arguments_without_json": 1}
    rows, left_out = export("sft", arguments="text")
    assert [row["messages"][2]["tool_calls"][0]["function"]["arguments"] for row in rows] == [
        '{"town": "Ulm"}',
        "{broken",
    ]
    assert left_out == {}


def test_each_reply_is_trained_on_once_when_history_is_rewritten(memory, export):
    """A client that compacts its history begins another branch; one that sends reasoning back without it does not."""
    first, call, _, answer = asked("Ulm")
    without = [*first, says("", None, '{"town":"Ulm"}'), result("rain")]
    compacted = [user("Summary: it rains in Ulm."), user("And tomorrow?")]
    steps = [
        step("t1", 0, first, call),
        step("t1", 1, without, answer, parent_step_id="t1-0"),
        step("t1", 2, compacted, says("Sun."), fork_reason="compaction"),
    ]
    put(memory, "t1", steps)
    rows, _ = export("sft")
    assert [row["agentworld"]["step_ids"] for row in rows] == [["t1-0", "t1-1"], ["t1-2"]]
    assert rows[0]["messages"][2]["reasoning_content"] == "I look up Ulm."  # As it was sampled.
    each, _ = export("sft", expand="each-step")
    assert [row["agentworld"]["step_ids"] for row in each] == [["t1-0"], ["t1-1"], ["t1-2"]]
    assert "reasoning_content" not in each[1]["prompt"][2]  # As the model saw it.
    assert [roles(row["completion"]) for row in each] == [["assistant"]] * 3


def test_replies_that_are_not_of_the_version_are_context_only(memory, export):
    """Of a step that was selected alone, replies before it must not be trained on: messages cannot say that."""
    put_weather(memory)
    memory.add_rewards([Reward(step_id="t1-1", value=1.0, name="kept")])
    selection = {"selection": {"unit": "step", "where": "reward.kept == 1"}}
    with pytest.raises(InvalidRequestError, match="other_replies"):
        export("sft", **selection)
    [row], _ = export("sft", style="prompt-completion", **selection)
    assert roles(row["prompt"]) == ["system", "user", "assistant", "tool"]
    assert roles(row["completion"]) == ["assistant"]


def test_two_replies_that_go_on_from_one_are_two_rows_and_neither_trains_the_shared_one_twice(memory, export):
    first, call, second, answer = asked("Ulm")
    steps = [
        step("t1", 0, first, call),
        step("t1", 1, second, answer, parent_step_id="t1-0"),
        step("t1", 2, second, says("Rain again."), parent_step_id="t1-0", fork_reason="parallel"),
    ]
    put(memory, "t1", steps)
    rows, _ = export("sft", style="prompt-completion")
    assert [row["agentworld"]["step_ids"] for row in rows] == [["t1-0", "t1-1"], ["t1-2"]]
    assert [roles(row["completion"]) for row in rows] == [["assistant", "tool", "assistant"], ["assistant"]]
    rows, left_out = export("sft")
    assert len(rows) == 1
    assert left_out == {"other_replies": 1}


def test_token_rows_train_each_sampled_token_once(memory, export):
    """A prompt that extends what was sampled goes on in one row; a broken one begins another, masked."""
    words = {"prompt_messages": None, "response_message": None}
    ids = {"token_source": "engine", "vocabulary": "v"}
    steps = [
        step("t1", 0, [], None, prompt_ids=[1, 2], response_ids=[3, 4, 5], response_mask=[1, 0, 1], **ids),
        step("t1", 1, [], None, prompt_ids=[1, 2, 3, 4, 5, 6], response_ids=[7], **ids),
        step("t1", 2, [], None, prompt_ids=[1, 9], response_ids=[3], **ids),
    ]
    for one in steps:
        one.prompt_messages, one.response_message = words["prompt_messages"], words["response_message"]
    put(memory, "t1", steps)
    put_weather(memory, "t2")
    rows, left_out = export("sft-tokens")
    assert [(row["input_ids"], row["labels"], row["completion_mask"]) for row in rows] == [
        ([1, 2, 3, 4, 5, 6, 7], [-100, -100, 3, -100, 5, -100, 7], [0, 0, 1, 0, 1, 0, 1]),
        ([1, 9, 3], [-100, -100, 3], [0, 0, 1]),
    ]
    assert left_out == {"without_ids": 2}
    rows, _ = export("sft-tokens", expand="each-step")
    assert [row["completion_mask"] for row in rows] == [[0, 0, 1, 0, 1], [0] * 6 + [1], [0, 0, 1]]
    with pytest.raises(ConfigError, match="needs the tokenizer"):
        export("sft-tokens", train=("answer",))
    with pytest.raises(ConfigError, match="no option thinking"):
        export("sft-tokens", thinking="drop")


def test_pairs_of_comparisons_corrections_and_rewards(memory, export):
    first, *_ = asked("Ulm")
    put_weather(memory, "t1", group_id="g", reward=1.0)
    other = says("", "Bonn is near.", '{"town": "Bonn"}')
    steps = [step("t2", 0, first, other), step("t2", 1, [*first, other, result("sun")], says("It is sunny."))]
    put(memory, "t2", steps, reward=0.2, group_id="g")
    put_weather(memory, "t3", group_id="g", reward=0.9)
    memory.add_feedback(
        [
            Feedback(kind="comparison", step_id="t1-0", other_id="t2-0", value=2.0),
            Feedback(kind="comparison", trajectory_id="t1", other_id="t3"),
            Feedback(kind="comparison", step_id="t1-1", other_id="t2-1"),
            Feedback(kind="correction", trajectory_id="t1", value="Too early."),  # Of its last reply.
            Feedback(kind="correction", step_id="t1-1", value="Take an umbrella.", feedback_id="later"),
        ]
    )
    rows, left_out = export("preference")
    assert [(row["agentworld"]["step_ids"], row["margin"]) for row in rows] == [
        (["t1-0", "t2-0"], 2.0),
        (["t1-1"], 0.0),
    ]
    assert left_out == {"no_common_prompt": 2}  # t3 never differs from t1; t2 was told something else before.
    assert rows[0]["prompt"] == [
        {"role": "system", "content": "Be short."},
        {"role": "user", "content": "How is the weather in Ulm?"},
    ]
    assert rows[0]["chosen"][0]["tool_calls"][0]["function"]["arguments"] == {"town": "Ulm"}
    assert rows[0]["rejected"][0]["reasoning_content"] == "Bonn is near."
    assert rows[1]["chosen"] == [{"role": "assistant", "content": "Take an umbrella."}]
    assert rows[1]["rejected"][0]["content"] == "It rains in Ulm."

    rows, _ = export("preference", sources=("rewards",), margin=0.5)
    assert [(row["agentworld"]["step_ids"], row["margin"]) for row in rows] == [
        (["t1-0", "t2-0"], pytest.approx(0.8)),
        (["t3-0", "t2-0"], pytest.approx(0.7)),
    ]
    rows, _ = export("preference", sources=("rewards",), margin=0.5, most=1, whole=True)
    assert [roles(row["chosen"]) for row in rows] == [["assistant", "tool", "assistant"]]
    assert rows[0]["agentworld"]["step_ids"] == ["t1-0", "t1-1", "t2-0", "t2-1"]
    with pytest.raises(ConfigError, match="need a margin"):
        export("preference", sources=("rewards",))
    with pytest.raises(InvalidRequestError, match=r"group_without_contrast"):
        export("preference", sources=("rewards",), margin=5.0)


def test_pairs_of_a_large_group_are_made_with_a_few_trajectories_in_memory(memory, export, monkeypatch):
    for number in range(16):
        put(memory, f"t{number}", [step(f"t{number}", 0, [user("Where?")], says(f"{number}"))], reward=1.0 * number,
            group_id="g")  # fmt: skip
    held, read = [], VersionSource.at
    gc.freeze()  # So that what is counted is looked for only among what comes from here on.

    def at(self, position):
        held.append(sum(isinstance(one, FrozenTrajectory) for one in gc.get_objects()))
        return read(self, position)

    monkeypatch.setattr(VersionSource, "at", at)
    rows, _ = export("preference", sources=("rewards",), margin=1.0, most=60)

    assert len(rows) == 60
    assert [row["margin"] for row in rows] == sorted((row["margin"] for row in rows), reverse=True)
    assert max(held) <= 6 < len(held)


def test_pairs_are_of_the_steps_of_the_version_and_of_one_split(memory, tmp_path):
    """Whatever happens to the other side after the version was frozen, and wherever it is."""
    for number in range(12):
        for town in ("Ulm", "Bonn"):
            put(
                memory,
                f"{number:02}{town}",
                [step(f"{number:02}{town}", 0, [user("Where?")], says(f"{town} {number}"))],
            )
    put(memory, "secret", [step("secret", 0, [user("Where?")], says("Kiel"))], channel="other")
    put(memory, "two", [step("two", 0, [user("Where?")], says("2")), step("two", 1, [user("Where?")], says("3"))])
    memory.decide([Decision(verdict="exclude", step_id="two-0", reason="bad")])
    names = [f"{number:02}{town}" for number in range(12) for town in ("Ulm", "Bonn")]
    memory.add_feedback(
        [
            Feedback(kind="comparison", trajectory_id=one, other_id=other)
            for one in names
            for other in names
            if one < other
        ]
        + [
            Feedback(kind="comparison", trajectory_id="00Ulm", other_id="secret"),
            Feedback(kind="comparison", step_id="00Ulm-0", other_id="secret-0"),
            Feedback(kind="comparison", step_id="two-1", other_id="two-0"),
        ]
    )
    halves = Splits(fractions={"train": 0.5, "test": 0.5}, by="trajectory", near_duplicates=None)
    version = frozen(memory, splits=halves).version
    split = {row.trajectory_id: row.split for row in rows_of(memory, version)}
    same = sum(split[one] == split[other] for one in names for other in names if one < other)

    def pairs(folder):
        report = export_dataset(memory, version, "preference", tmp_path / folder, file_format="jsonl")
        lines = [line for each in report.splits.values() for file in each.files
                 for line in (tmp_path / folder / file).read_text().splitlines()]  # fmt: skip
        return sorted(json.loads(line)["agentworld"]["step_ids"] for line in lines), report.left_out

    found, left_out = pairs("before")
    assert all(split[better[:-2]] == split[worse[:-2]] for better, worse in found)
    assert len(found) == same > 0
    assert left_out == {"comparison_of_other_split": 12 * 23 - same, "comparison_outside_version": 3}
    memory.decide([Decision(verdict="exclude", step_id="03Bonn-0", reason="later")])
    assert pairs("after") == (found, left_out)
    memory.delete_trajectories(["03Bonn"], "asked for")
    again, left_out = pairs("gone")
    assert again == [pair for pair in found if "03Bonn-0" not in pair]
    assert left_out["deleted"] == 1


def test_replies_are_good_or_bad_by_their_own_value_or_their_trajectorys(memory, export):
    put_weather(memory, "t1", reward=1.0)
    put_weather(memory, "t2", "Bonn", reward=0.0)
    put_weather(memory, "t3", "Kiel", reward=None)
    memory.add_rewards([Reward(step_id="t2-0", value=0.7), Reward(trajectory_id="t3", value=1.0, name="style")])
    memory.add_feedback(
        [
            Feedback(kind="rating", step_id="t1-0", name="taste", value=5, source="ann"),
            Feedback(kind="rating", step_id="t1-0", name="taste", value=2, source="bo"),
            Feedback(kind="label", trajectory_id="t1", name="ok", value=False),
        ]
    )
    everything = {"selection": {"unrewarded": True}}
    rows, left_out = export("kto", **everything)
    assert {row["agentworld"]["step_ids"][0]: row["label"] for row in rows} == {
        "t1-0": True,
        "t1-1": True,
        "t2-0": True,
        "t2-1": False,
    }
    assert left_out == {"without_value": 2}
    rows, _ = export("kto", expand="last", **everything)
    assert [row["agentworld"]["step_ids"] for row in rows] == [["t1-1"], ["t2-1"]]
    rows, _ = export("kto", reward="rating.taste", threshold=4, **everything)
    assert [(row["value"], row["label"]) for row in rows] == [(3.5, False)]
    rows, _ = export("kto", reward="label.ok", **everything)
    assert [row["label"] for row in rows] == [False, False]
    with pytest.raises(InvalidRequestError, match=r"Values that trajectories have: .*rating.taste"):
        export("kto", reward="reward.none", **everything)
    rows, _ = export("kto", reward="reward.style", **everything)
    assert [row["agentworld"]["trajectory_id"] for row in rows] == ["t3", "t3"]
    with pytest.raises(ConfigError, match="names no value"):
        export("kto", reward="taste")


def test_replies_of_a_branch_with_a_reward_each(memory, export):
    put_weather(memory, "t1")
    put_weather(memory, "t2", "Bonn")
    memory.add_rewards(
        [
            Reward(step_id="t1-0", value=1.0, name="progress"),
            Reward(step_id="t1-1", value=0.0, name="progress"),
            Reward(step_id="t2-1", value=1.0, name="progress"),
        ]
    )
    [row], left_out = export("prm", reward="reward.progress")
    assert row["prompt"] == "Be short.\n\nHow is the weather in Ulm?"
    assert row["completions"] == [
        'I look up Ulm.\n\nweather({"town": "Ulm"})',
        "rain\n\nThe tool says rain.\n\nIt rains in Ulm.",
    ]
    assert (row["labels"], row["rewards"]) == ([True, False], [1.0, 0.0])
    assert left_out == {"without_value": 1}
    [row], _ = export("prm", reward="reward.progress", style="messages", thinking="drop")
    assert [roles(turn) for turn in row["completions"]] == [["assistant"], ["tool", "assistant"]]


def test_prompts_of_tasks_once_each_with_their_references(memory, export):
    task = {"task_id": "w1", "task_set": "towns", "reference": {"town": "Ulm"}}
    put_weather(memory, "t1", task=task)
    put_weather(memory, "t2", task=task)
    put_weather(memory, "t3", "Bonn")
    rows, left_out = export("rl-prompts")
    assert [row["data_source"] for row in rows] == ["towns", "good"]
    assert rows[0]["reward_model"] == {"style": "rule", "ground_truth": '{"town":"Ulm"}'}
    assert rows[0]["extra_info"] == {"split": "train", "index": 0, "task_id": "w1", "trajectory_id": "t1"}
    assert rows[1]["extra_info"]["index"] == 1
    assert roles(rows[0]["prompt"]) == ["system", "user"]
    assert left_out == {"prompt_again": 1}


def test_raw_steps_have_every_field_as_it_was_frozen(memory, export):
    put_weather(memory, "t1", task={"task_id": "a"})
    memory.add_rewards([Reward(step_id="t1-0", value=0.5, name="own")])
    version = frozen(memory)
    memory.add_rewards([Reward(step_id="t1-0", value=0.75, name="own")])
    rows, _ = export("steps", selection={"where": "step_count == 2"})
    assert rows[0]["rewards"] == {"own": 0.75}  # Another version, frozen later.
    assert rows[0]["prompt_messages"][1]["content"] == "How is the weather in Ulm?"
    assert rows[0]["policy"] == {"model": "m", "run": "r", "version": 1}
    assert rows[1]["trajectory_task"] == {"task_id": "a"}
    assert rows[1]["trajectory_reward"] == 1.0
    assert version.version != rows[0]["agentworld"]["version"]


def test_columns_that_were_not_frozen_say_so_in_the_card_and_the_others_are_under_a_digest(memory, export, tmp_path):
    put_weather(memory, task={"task_id": "a"})
    export("steps")
    [path] = tmp_path.rglob("README.md")
    told = {line.split("`")[1]: "; not frozen |" in line for line in path.read_text().splitlines() if "` |" in line}
    columns = {**STEP, **{f"trajectory_{name}": "" for name in TRAJECTORY}}
    assert {name for name, loose in told.items() if loose} == set(AS_IT_IS) <= set(columns)
    stored = memory.list_steps(include=("messages", "tokens", "logprobs")).items[0]
    of_row = {"step_id", "trajectory_id", "group_id", "prompt_length", "response_length", "reward", "rewards",
              "labels"}  # fmt: skip
    for name in STEP:
        if name in of_row:
            continue
        other = {"choice_index": 7, "step_index": 7, "is_last": True, "latency_ms": 9.0, "created_at": 9.0,
                 "metadata": {"a": 1}, "usage": Usage(1, 1), "version_spans": (VersionSpan(0, 1),),
                 "policy": Policy("m", "r", 9), "sampling": Sampling(temperature=2.0), "tools": [],
                 "prompt_ids": [9], "response_ids": [9], "response_mask": [0], "response_logprobs": [-9.0],
                 "prompt_messages": [], "response_message": says("else")}.get(name, "else")  # fmt: skip
        changed = msgspec.structs.replace(stored, **{name: other})
        assert (StepDigests().of(changed) == StepDigests().of(stored)) == (name in AS_IT_IS), name


def test_replies_that_were_cut_off_and_prompts_that_begin_them_are_left_out_and_counted(memory, export):
    put_weather(memory)
    cut = [user("Go."), says("One")]
    put(memory, "cut", [step("cut", 0, cut[:1], cut[1], finish_reason="length"),
                        step("cut", 1, [*cut, user("On.")], says("Two"))])  # fmt: skip
    put(memory, "begun", [step("begun", 0, [user("What?"), says("It is")], says(" 42."))])
    for options, trajectories, counts in (
        ({}, {"t1"}, {"truncated": 1, "other_replies": 1}),
        ({"truncated": "keep"}, {"t1", "cut"}, {"other_replies": 1}),
        ({"style": "prompt-completion"}, {"t1"}, {"truncated": 1, "prefilled": 1}),
        ({"expand": "each-step"}, {"t1", "cut"}, {"truncated": 1, "prefilled": 1}),
    ):
        rows, left_out = export("sft", **options)
        assert {row["agentworld"]["trajectory_id"] for row in rows} == trajectories
        assert left_out == counts
    for layout, options, counts in (
        ("kto", {}, {"prefilled": 1, "truncated": 1}),
        ("kto", {"truncated": "keep"}, {"prefilled": 1}),
        ("rl-prompts", {}, {"prefilled": 1}),
    ):
        rows, left_out = export(layout, **options)
        assert {row["agentworld"]["trajectory_id"] for row in rows} == {"t1", "cut"}
        assert ("cut-0" in str(rows)) == ("truncated" not in counts)
        assert left_out == counts


def test_replies_that_were_cut_off_make_no_pairs_and_no_branches_unless_they_are_kept(memory, export):
    """Either side of a pair, whatever it comes from, and one reply of several."""
    long = {"finish_reason": "length"}
    put(memory, "a", [step("a", 0, [user("Go.")], says("On")), step("a", 1, [user("Go."), says("On"), user("?")],
                                                                 says("And"), **long)], group_id="g")  # fmt: skip
    put(memory, "b", [step("b", 0, [user("Go.")], says("Of"), **long)], group_id="g", reward=0.0)
    memory.add_rewards([Reward(step_id=name, value=1.0, name="own") for name in ("a-0", "a-1", "b-0")])
    memory.add_feedback(
        [
            Feedback(kind="comparison", step_id="a-0", other_id="b-0"),
            Feedback(kind="comparison", trajectory_id="b", other_id="a"),
            Feedback(kind="correction", step_id="b-0", value="Off we go."),
        ]
    )
    asked = {"margin": 0.5, "truncated": "keep"}
    rows, left_out = export("preference", **asked)
    assert ([row["agentworld"]["step_ids"] for row in rows], left_out) == (
        [["a-0", "b-0"], ["b-0", "a-0"], ["b-0"], ["a-0", "b-0"]], {}
    )  # fmt: skip
    with pytest.raises(InvalidRequestError, match="4 truncated"):
        export("preference", margin=0.5)
    rows, _ = export("prm", reward="reward.own", truncated="keep")
    assert [row["labels"] for row in rows] == [[True, True], [True]]
    with pytest.raises(InvalidRequestError, match="2 truncated"):
        export("prm", reward="reward.own")


def test_ids_of_two_vocabularies_do_not_go_into_one_export(memory, export):
    ids = {"prompt_ids": [1], "response_ids": [2], "token_source": "submitted"}
    for name, vocabulary, model in (("t1", "a" * 32, "m"), ("t2", "a" * 32 + "+x", "m"), ("t3", None, "m")):
        put(
            memory,
            name,
            [step(name, 0, [user("Hi")], says("Ho"), vocabulary=vocabulary, policy=Policy(model, "r", 0), **ids)],
        )
    assert len(export("sft-tokens")[0]) == 3
    for number in range(8):  # In another split, too.
        put(
            memory,
            f"u{number}",
            [step(f"u{number}", 0, [user("Hi")], says("Ho"), vocabulary="b" * 32, policy=Policy("n", "r", 0), **ids)],
        )
    halves = Splits(fractions={"train": 0.5, "test": 0.5}, by="trajectory", near_duplicates=None)
    for splits in (Splits(near_duplicates=None), halves):
        with pytest.raises(InvalidRequestError, match=r"two vocabularies, (aaaa|bbbb)\w+ and (aaaa|bbbb)") as caught:
            export("sft-tokens", selection={"splits": splits})
        assert 'policy.model == "m"' in caught.value.hint
    assert len(export("sft-tokens", selection={"where": 'policy.model == "m"'})[0]) == 3


def test_arguments_with_a_key_twice_and_numbers_beyond_floats_are_no_values(memory, export):
    sound = ['{"a": {"b": ":", "c": "\\\\"}, "b": [{"a": 1}, {"a": "x\\"y:\\u003a"}]}', "", '{"\\"": 1}']
    twice = ['{"a": 1, "a": 2}', '{"a": [{"b": 1, "\\u0062": 1}]}', '{"": 1, "": {"x": 1}}']
    for number, arguments in enumerate(sound + twice):
        put(memory, f"a{number}", [step(f"a{number}", 0, [user("Hi")], says("", None, arguments))])
    rows, left_out = export("sft")
    called = [row["messages"][-1]["tool_calls"][0]["function"]["arguments"] for row in rows]
    assert called == [json.loads(each or "{}") for each in sound]
    assert left_out == {"arguments_key_twice": 3}
    assert len(export("sft", arguments="text")[0]) == 6
    memory.add_feedback(
        [Feedback(kind="label", trajectory_id=f"a{number}", name="score", value=value)
         for number, value in enumerate((10**400, 10**300, -3))]
    )  # fmt: skip
    rows, left_out = export("kto", reward="label.score", arguments="text")
    assert [row["value"] for row in rows] == [1e300, -3.0]
    assert left_out == {"without_value": 4}


def test_media_are_left_out_where_nobody_asked_for_images(memory, export):
    digest = memory.put_media(b"\x89PNG", "image/png")
    shown = Message(role="user", content=(TextPart("What is it?"), MediaPart(digest, "image/png")))
    put(memory, "t1", [step("t1", 0, [shown], says("A dot."))])
    put_weather(memory, "t2")
    rows, left_out = export("sft")
    assert len(rows) == 1
    assert left_out == {"media": 1}
    with pytest.raises(ConfigError, match="hold no images"):
        export("sft", images=True)


def test_replies_to_nothing_are_no_completions(memory, export):
    """A greeting that nobody asked for: a conversation may begin with it, a prompt cannot be empty."""
    put_weather(memory)
    put(memory, "t2", [step("t2", 0, [], says("Hello!"))])
    assert len(export("sft")[0]) == 2
    for layout, options in (
        ("sft", {"style": "prompt-completion"}), ("kto", {}), ("rl-prompts", {}), ("sft", {"expand": "each-step"}),
    ):  # fmt: skip
        rows, left_out = export(layout, **options)
        assert {row["agentworld"]["trajectory_id"] for row in rows} == {"t1"}
        assert left_out == {"without_prompt": 1}


@pytest.mark.parametrize("layout", ["sft", "sft-tokens"])
def test_what_is_not_to_be_imitated_is_left_out(memory, export, layout):
    """Replies of weight 0 are context, and the worse one of a comparison is no target."""
    first, call, answered, answer = asked("Ulm")
    ids = {"prompt_ids": [1, 2], "token_source": "submitted"}
    put(
        memory,
        "t1",
        [
            step("t1", 0, first, call, response_ids=[3], **ids),
            step("t1", 1, answered, answer, **{**ids, "prompt_ids": [1, 2, 3, 4]}, response_ids=[5]),
            step("t1", 2, first, says("Rain, surely."), response_ids=[6], **ids),
        ],
    )
    memory.add_feedback(
        [
            Feedback(kind="label", name="training_weight", value=0, step_id="t1-0", source="import"),
            Feedback(kind="comparison", step_id="t1-1", other_id="t1-2", source="anna"),
            Feedback(kind="comparison", step_id="t1-2", other_id="t1-1", source="anna"),
            Feedback(kind="comparison", step_id="t1-2", other_id="t1-1", source="anna", value=0),
        ]
    )
    options = {"style": "prompt-completion"} if layout == "sft" else {}
    [row], left_out = export(layout, **options)
    assert left_out == {"weight_zero": 1, "not_preferred": 1}
    assert row["agentworld"]["step_ids"] == ["t1-1"]
    if layout == "sft-tokens":
        assert [label for label in row["labels"] if label != -100] == [5]
    else:
        assert [message["content"] for message in row["completion"]] == [answer.text]
