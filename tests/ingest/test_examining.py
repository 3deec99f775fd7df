"""Digests of runs: the same on every machine and in every later version, and another one for any other content."""

import msgspec
import pytest

from agentworld.ingest.examining import examine, name_of
from agentworld.ingest.occurrences import Occurrences
from agentworld.ingest.run import Run, RunFeedback, RunReward, linear_steps
from agentworld.records import FunctionCall, Message, Step, ToolCall, Usage


def run(**fields):
    call = ToolCall("c", FunctionCall("f", '{"a": 1}'))
    messages = [
        Message(role="user", content="two and two"),
        Message(role="assistant", tool_calls=(call,)),
        Message(role="tool", tool_call_id="c", content="4"),
        Message(role="assistant", content="4", reasoning="easy"),
        Message(role="user", content="thanks"),
    ]
    steps, trailing = linear_steps(messages, tools=[{"type": "function", "function": {"name": "f"}}], model="m")
    made = {"native_id": "n", "steps": steps, "trailing": trailing, "rewards": [RunReward(name="r", value=1.0)]}
    return Run(**{**made, "metadata": {"a": [1, None]}, **fields})


def test_the_digest_is_the_one_that_pools_have():
    facts = examine(run())
    # Where this changes, every run that was ever imported is taken for a changed one.
    assert facts.digest == "b364fda41c85fb9f2cfe1220b4d05005"
    assert (facts.steps, facts.messages, facts.tool_calls, facts.tool_results) == (2, 5, 1, 1)
    named, unnamed = name_of("chat", "n", facts.digest, 3), name_of("chat", None, facts.digest, 3)
    assert (named, unnamed) == ("chat-308065cf941fe07fe964fd80", "chat-c82059cba8391e6fce45d641")
    others = [("chat", None, facts.digest, 4), ("other", None, facts.digest, 3), ("chat", None, facts.digest, 3, "u")]
    others += [("chat", "n", facts.digest, 3, "u"), ("chat", "n", facts.digest, 3, "v")]
    assert len({named, unnamed, *(name_of(*other) for other in others)}) == 7
    assert name_of("chat", "n", "", 1, "u") == name_of("chat", "n", facts.digest, 3, "u")


@pytest.mark.parametrize(
    "change",
    [
        lambda it: it.steps[1].prompt_messages.append(Message(role="user", content="")),
        lambda it: it.steps[0].prompt_messages.clear(),
        lambda it: setattr(it.steps[0], "prompt_messages", None),
        lambda it: setattr(it.steps[1], "response_message", Message(role="assistant", content="4")),
        lambda it: setattr(it.steps[1], "tools", []),
        lambda it: setattr(it.steps[1], "parent_step_id", None),
        lambda it: setattr(it.steps[1], "usage", Usage(1, 2)),
        lambda it: setattr(it.steps[1], "response_ids", [1]),
        lambda it: it.steps.pop(),
        lambda it: it.trailing.pop(),
        lambda it: it.rewards.clear(),
        lambda it: it.feedback.append(RunFeedback(kind="label", name="a", value=True)),
        lambda it: it.metadata.clear(),
        lambda it: setattr(it, "status", "failed"),
        lambda it: it.media.update({"0" * 32: (b"", "image/png")}),
        lambda it: setattr(it, "native_id", None),
    ],
)
def test_any_other_content_has_another_digest(change):
    other = run()
    change(other)
    assert examine(other).digest != examine(run()).digest


def test_looking_at_a_run_leaves_it_as_it_is():
    looked, untouched = run(), run()
    examine(looked)
    assert looked == untouched


def test_what_branches_have_in_common_is_counted_once():
    ask, answer, more = (Message(role=r, content=c) for r, c in (("user", "a"), ("assistant", "b"), ("user", "c")))
    steps = [
        Step(step_id="0", trajectory_id="", prompt_messages=[ask], response_message=answer),
        Step(step_id="1", trajectory_id="", prompt_messages=[ask, answer, more], response_message=answer),
        Step(
            step_id="2",
            trajectory_id="",
            parent_step_id="0",
            prompt_messages=[ask, answer, more],
            response_message=answer,
        ),
        Step(step_id="3", trajectory_id="", prompt_messages=[more], response_message=answer),
        Step(step_id="4", trajectory_id="", parent_step_id="1", prompt_messages=[ask, more], response_message=answer),
    ]
    # ask, b, c, two replies; c alone with its reply; c after ask with its reply.
    assert examine(Run(native_id=None, steps=steps)).messages == 9
    many = [ask, answer] * 2000
    steps, _ = linear_steps(many)
    facts = examine(Run(native_id=None, steps=steps))
    assert (facts.steps, facts.messages) == (2000, 4000)
    assert facts.size < 4000 * 200
    assert msgspec.structs.asdict(facts)["tool_calls"] == 0


def test_equal_contents_are_numbered_up_to_so_many_that_memory_stays_bounded():
    counted = Occurrences(most=2)
    digests = ["a" * 32, "b" * 32, "a" * 32]
    assert [counted.count(digest) for digest in digests] == [1, 1, 2]
    assert not counted.full
    assert [counted.count(digest) for digest in ("c" * 32, "c" * 32, "b" * 32, "a" * 32)] == [1, 1, 2, 3]
    assert counted.full
    counted.start()
    assert (counted.full, counted.count("a" * 32)) == (False, 1)
