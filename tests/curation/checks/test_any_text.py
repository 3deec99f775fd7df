"""Whatever agents and tools write, no check fails on it, and what is found can be stored."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentworld.curation.checks import CheckContext, CheckSettings, EvaluationSets, pool_checks, run_checks
from agentworld.curation.checks.loops import longest_cycle
from agentworld.curation.checks.private_rules import excerpt, masked, personal_data
from agentworld.curation.checks.schema import fault
from agentworld.curation.checks.secret_rules import secrets
from agentworld.curation.checks.shortcuts import find_whole
from agentworld.curation.checks.tool_errors import how_it_failed
from agentworld.records import BatchTrajectory, FunctionCall, Message, Policy, Step, ToolCall, Trajectory
from tests.curation.checks.building import calls, run, says, tool, user
from tests.examples import examples

# Pieces that checks look for, among any characters, lone surrogates too.
PIECES = [
    *("Error: ", "exit code 3", "{", "}", '"', "AKIA", "ghp_", "@a.bc", "+1", "1.1.1.1", "I can't help", "<tool_call>"),
    *("Traceback (most recent call last)", "tests/test_a.py", "> ", "sed -i ", "os._exit(0)", "://a:bcd@e", "eyJ"),
    *("-----BEGIN PRIVATE KEY-----", "4111 1111 1111 1111", "GB82 WEST", "\0", "\u0130", "\ufb01"),
]
ANY = st.characters(exclude_categories=())
TEXTS = st.lists(st.sampled_from(PIECES) | st.text(ANY, max_size=12), max_size=8).map("".join)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
MESSAGES = st.builds(
    Message,
    role=st.sampled_from(["system", "user", "assistant", "tool"]),
    content=st.none() | TEXTS,
    reasoning=st.none() | TEXTS,
    tool_calls=st.lists(
        st.builds(
            ToolCall,
            st.just("c"),
            st.builds(FunctionCall, TEXTS, TEXTS | JSON.map(lambda v: msgspec.json.encode(v).decode())),
        ),
        max_size=2,
    ).map(tuple),
)
TOOLS = st.none() | st.lists(
    st.dictionaries(st.sampled_from(["name", "function", "parameters"]), JSON, max_size=3), max_size=2
)


@st.composite
def records(draw):
    steps, prompt = [], []
    for number in range(draw(st.integers(0, 3))):
        prompt += draw(st.lists(MESSAGES, max_size=3))
        steps.append(
            Step(
                step_id=f"s{number}",
                trajectory_id="t",
                parent_step_id=draw(st.none() | st.sampled_from(["s0", "s1", "gone"])),
                prompt_messages=draw(st.none() | st.just(list(prompt))),
                response_message=draw(st.none() | MESSAGES),
                response_ids=draw(st.none() | st.just([1])),
                tools=draw(TOOLS),
                policy=draw(st.none() | st.just(Policy("m", "r", number))),
                excluded_reason=draw(st.none() | TEXTS),
            )
        )
    task = draw(st.none() | st.dictionaries(st.sampled_from(["reference", "task_id"]), JSON | TEXTS, max_size=2))
    status = draw(st.sampled_from(["finished", "open", "failed"]))
    return BatchTrajectory(trajectory=Trajectory(trajectory_id="t", status=status, reward=0.0, task=task), steps=steps)


CONTEXT = CheckContext(
    settings=CheckSettings(max_staleness=0, shortest_text=1, shingle=1, outlier_from=1, ngram=3),
    current=Policy("m", "r", 9),
    evaluation=EvaluationSets({"a": ["one two three four"]}, 3),
)


@given(st.lists(records(), max_size=3))
@settings(max_examples=examples(60), deadline=None)
def test_no_check_fails_on_any_trajectory(many):
    checks = {name: make(CONTEXT.settings) for name, make in pool_checks().items()}
    for record in many:
        found = run_checks(record, CONTEXT)
        assert [each.evidence for each in found if each.check == "failed"] == []
        for each in found:
            msgspec.json.encode(each.feedback())
        for check in checks.values():
            check.add(record)
    for name, check in checks.items():
        for each in check.result():
            msgspec.json.encode(each.feedback())
        assert type(check).load(check.save(), CONTEXT.settings).save() == check.save(), name


@given(TEXTS, st.integers(0, 200), st.integers(0, 200))
@settings(max_examples=examples(100), deadline=None)
def test_rules_for_text_take_any(text, start, length):
    for hit in (*secrets(text), *personal_data(text)):
        assert 0 <= hit.start < hit.end <= len(text)
    masked(text)
    assert len(excerpt(text, min(start, len(text)), min(start + length, len(text)))) <= 120
    how_it_failed(text)


@given(JSON, JSON)
@settings(max_examples=examples(100), deadline=None)
def test_any_value_is_held_against_any_schema(value, schema):
    assert fault(value, schema) is None or isinstance(fault(value, schema), str)


@given(st.lists(st.sampled_from("abc"), max_size=24))
@settings(max_examples=examples(100), deadline=None)
def test_the_longest_cycle_is_the_one_that_counting_finds(actions):
    best = 1
    for period in range(1, 5):
        for begin in range(len(actions)):
            times = 1
            cycle = actions[begin : begin + period]
            while len(cycle) == period and actions[begin + times * period : begin + (times + 1) * period] == cycle:
                times += 1
            best = max(best, times)
    times, period, end = longest_cycle(actions)
    assert times == best
    assert actions[end - times * period + 1 : end + 1] == actions[end - period + 1 : end + 1] * times or times == 1


@given(st.lists(st.text("ab_ -", min_size=1, max_size=3), max_size=2), st.text("ab_ -", max_size=12))
@settings(max_examples=examples(200), deadline=None)
def test_a_reference_is_found_where_no_letter_stands_beside(needles, text):
    def whole(needle, at):
        before, after = text[at - 1 : at] if at else "", text[at + len(needle) :][:1]
        beside = [before + needle[0], needle[-1] + after]
        return text.startswith(needle, at) and not any(len(two) == 2 and set(two) <= set("ab_") for two in beside)

    places = [next((at for at in range(len(text)) if whole(needle, at)), None) for needle in needles]
    assert find_whole(needles, text) == next((at for at in places if at is not None), None)


def test_a_reference_is_looked_for_in_the_first_million_characters():
    assert find_whole(["aaaa"], "a" * 999_995 + " aaaa") == 999_996
    assert find_whole(["aaaa"], "a" * 999_996 + " aaaa") is None


@pytest.mark.parametrize(
    "piece",
    [
        "1",
        "1 ",
        "a@",
        "x",
        "://",
        "eyJ",
        "A1",
        "sk-",
        "-----BEGIN PRIVATE KEY-----",
        "-----END PRIVATE KEY-----",
        "PRIVATE KEY",
        "eyJaaaaaaaa.",
        "I can",
        "exit code ",
        "1.1.",
        "(1",
        "AB12 ",
        "rm ",
        "test_",
    ],
)
def test_a_piece_over_and_over_is_no_trap(piece):
    """A rule that goes back and forth would not end before the test's time does."""
    text = (piece * 100_000)[:100_000]
    masked(text)
    how_it_failed(text)
    command = calls(("bash", {"command": text}), ("write_file", {"path": text, "content": text}))
    record = run(user(text), command, tool(text), says(text), task={"reference": piece * 4})
    assert [each for each in run_checks(record) if each.check == "failed"] == []


@pytest.mark.parametrize("begin", ["os._exit(", "sys.exit(0", "def __eq__(self, other):"])
def test_blanks_without_end_take_no_time_that_grows_with_their_square(begin):
    """A policy chooses what is checked: with the square, these would run for minutes."""
    record = run(user("go"), calls(("python", {"code": begin + " " * 150_000})))
    assert [each.label for each in run_checks(record) if each.check in ("reward_hacking", "failed")] == []
