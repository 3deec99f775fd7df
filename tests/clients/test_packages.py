"""The openai and anthropic packages: streams, conversations side by side, demanded calls, schemas."""

import json

import pytest

from tests.clients.conftest import needs
from tests.clients.replies import call, turn
from tests.clients.stage import called, chain, extends, results, roles

pytestmark = [pytest.mark.clients, needs("python"), pytest.mark.timeout(300)]
ANSWER = {"colour": "blue", "places": ["für", "数"]}
LOOKS = turn("I look.", call("look", place="here"), call("look", place="数"), think="Where?")


def saw(stage, package, part):
    """What the program said, and its trajectory."""
    run, trajectory = stage.exec_program(f"{package}_features.py", part)
    return json.loads(run.output), trajectory


def check_looking(steps, opening):
    chain(steps)
    assert called(steps[0]) == [("look", '{"place": "here"}'), ("look", '{"place": "数"}')]
    assert results(steps[1]) == ["here is blue", "数 is blue"]
    assert roles(steps[1]) == [*opening, "assistant", "tool", "tool"]
    assert [step.response_message.reasoning for step in steps] == ["Where?", None]
    assert [step.finish_reason for step in steps] == ["tool_calls", "stop"]


def test_openai_streams(stage):
    stage.engine.script = [LOOKS, "It is blue."]
    seen, trajectory = saw(stage, "openai", "streamed")
    assert seen[0][:2] == ["I look.", [["look", {"place": "here"}], ["look", {"place": "数"}]]]
    assert {"content.delta", "tool_calls.function.arguments.done"} <= set(seen[0][2])
    assert seen[1][:2] == ["It is blue.", []]
    check_looking(stage.steps(trajectory), ["developer", "user"])


def test_anthropic_streams(stage):
    stage.engine.script = [LOOKS, "It is blue."]
    seen, trajectory = saw(stage, "anthropic", "streamed")
    assert seen == [
        ["I look.", ["thinking", "text", "tool_use", "tool_use"], "tool_use"],
        ["It is blue.", ["text"], "end_turn"],
    ]
    check_looking(stage.steps(trajectory), ["system", "user"])


@pytest.mark.parametrize("package", ["openai", "anthropic"])
def test_conversations_side_by_side_are_branches(stage, package):
    def script(request):
        number = request.prompt_text.split("Conversation ")[1][0]
        return turn(f"{number}: {request.prompt_text.count('Go on.')}", think="Hm.")

    stage.engine.script = script
    seen, trajectory = saw(stage, package, "side by side")
    assert seen == [f"{number}: 2" for number in range(4)]
    steps = stage.steps(trajectory)
    assert len(steps) == 12
    by_id = {step.step_id: step for step in steps}
    assert sum(step.parent_step_id is None for step in steps) == 4
    for step in steps:
        number = step.prompt_messages[0].content
        if step.parent_step_id is not None:
            parent = by_id[step.parent_step_id]
            assert parent.prompt_messages[0].content == number
            assert len(parent.prompt_messages) == len(step.prompt_messages) - 2
            if stage.tokens == "token-in":
                extends(parent, step)


def test_openai_schemas(stage):
    stage.engine.script = [json.dumps(ANSWER, ensure_ascii=False)] * 2
    seen, trajectory = saw(stage, "openai", "structured")
    assert seen == [ANSWER, ANSWER]
    steps = stage.steps(trajectory)
    assert [step.dialect for step in steps] == ["chat", "responses"]
    for step in steps:
        assert step.sampling.response_format["type"] == "json_schema"
        assert "colour" in step.sampling.response_format["json_schema"]["schema"]["properties"]
    assert all(request.body["response_format"]["type"] == "json_schema" for request in stage.engine.requests)


def test_anthropic_schemas(stage):
    stage.engine.script = [json.dumps(ANSWER, ensure_ascii=False)]
    seen, trajectory = saw(stage, "anthropic", "structured")
    assert seen == ANSWER
    (step,) = stage.steps(trajectory)
    assert "colour" in step.sampling.response_format["json_schema"]["schema"]["properties"]
    assert stage.engine.requests[0].body["response_format"]["type"] == "json_schema"


@pytest.mark.parametrize("package", ["openai", "anthropic"])
def test_a_demanded_call_is_the_engines_own_way(stage, package):
    stage.engine.script = [turn(call("look", place="here"))]
    seen, trajectory = saw(stage, package, "demanded")
    assert seen == [["look", {"place": "here"}]]
    (step,) = stage.steps(trajectory, source="engine")
    assert step.sampling.tool_choice == {"type": "function", "function": {"name": "look"}}
    assert stage.engine.requests[0].body["tool_choice"] == {"type": "function", "function": {"name": "look"}}


def test_openai_responses_go_on_from_a_stored_one(stage):
    stage.engine.script = [LOOKS, "It is blue."]
    seen, trajectory = saw(stage, "openai", "responses")
    assert seen == [["look", "look"], "It is blue.", "response.created", "response.completed"]
    steps = stage.steps(trajectory)
    chain(steps)
    assert results(steps[1]) == ["blue", "blue"]
    assert roles(steps[1]) == ["system", "user", "assistant", "tool", "tool"]


def test_openai_completions(stage):
    stage.engine.script = [" a time."]
    seen, trajectory = saw(stage, "openai", "completions")
    assert seen == " a time."
    (step,) = stage.steps(trajectory)
    assert step.dialect == "completions"


@pytest.mark.parametrize("stage", ["token-in"], indirect=True)
def test_anthropic_counts(stage):
    seen, trajectory = saw(stage, "anthropic", "counted")
    assert seen > len("What colour?")
    assert stage.engine.requests == []
    assert trajectory.step_count == 0
