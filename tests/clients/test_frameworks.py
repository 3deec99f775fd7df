"""OpenAI Agents SDK, LangGraph and pydantic-ai beyond the guide: streams, several agents, answers by a schema."""

import json

import pytest

from tests.clients.conftest import needs
from tests.clients.replies import call, turn
from tests.clients.stage import called, chain, results, roles, tool_names

pytestmark = [pytest.mark.clients, needs("python"), pytest.mark.timeout(300)]
LOOK = turn("I look.", call("look", place="here"), call("look", place="数"), think="Where?")
token_in = pytest.mark.parametrize("stage", ["token-in"], indirect=True)


def saw(stage, framework, part):
    run, trajectory = stage.exec_program(f"{framework}_features.py", part)
    return json.loads(run.output), trajectory


def check_looking(steps):
    chain(steps)
    assert [[name for name, _ in called(step)] for step in steps] == [["look", "look"], []]
    assert results(steps[1]) == ["here is blue", "数 is blue"]
    assert roles(steps[1]) == ["system", "user", "assistant", "tool", "tool"]
    assert steps[0].response_message.reasoning == "Where?"


@token_in
def test_agents_sdk_streams(stage):
    stage.engine.script = [LOOK, "It is blue."]
    seen, trajectory = saw(stage, "agents", "streamed")
    assert seen == ["It is blue.", True]
    check_looking(stage.steps(trajectory))


@token_in
def test_a_hand_over_is_a_branch(stage):
    stage.engine.script = [turn(call("transfer_to_eye")), LOOK, "It is blue."]
    seen, trajectory = saw(stage, "agents", "hand over")
    assert seen == ["It is blue.", "eye"]
    head, first, second = stage.steps(trajectory)
    assert tool_names(head) == ["transfer_to_eye"]
    assert tool_names(first) == ["look"]
    assert (first.parent_step_id, first.fork_reason) == (None, "subagent")
    assert first.prompt_messages[0].content == "You are the eye."
    assert (second.parent_step_id, second.fork_reason) == (first.step_id, None)


@token_in
def test_an_agent_as_a_tool_is_a_branch_and_its_caller_goes_on(stage):
    stage.engine.script = [turn(call("ask_eye", input="Look.")), LOOK, "Blue.", "It says blue."]
    seen, trajectory = saw(stage, "agents", "agent as a tool")
    assert seen == "It says blue."
    head, first, second, last = stage.steps(trajectory)
    assert (first.parent_step_id, first.fork_reason) == (None, "subagent")
    assert (second.parent_step_id, second.fork_reason) == (first.step_id, None)
    assert (last.parent_step_id, last.fork_reason) == (head.step_id, None)
    assert results(last) == ["Blue."]


@token_in
def test_agents_sdk_has_answers_by_a_schema(stage):
    stage.engine.script = ['{"colour": "blue"}']
    seen, trajectory = saw(stage, "agents", "schema")
    assert seen == {"colour": "blue"}
    (step,) = stage.steps(trajectory)
    assert step.sampling.response_format["type"] == "json_schema"


@token_in
def test_langgraph_streams_over_messages(stage):
    stage.engine.script = [LOOK, "It is blue."]
    seen, trajectory = saw(stage, "langgraph", "streamed")
    assert seen == [True, "It is blue."]
    steps = stage.steps(trajectory)
    check_looking(steps)
    assert {step.dialect for step in steps} == {"anthropic"}


@token_in
def test_nodes_of_langgraph_at_once_are_branches(stage):
    stage.engine.script = lambda request: "l" if "left" in request.prompt_text else "r"
    seen, trajectory = saw(stage, "langgraph", "at once")
    assert seen == ["l", "r"]
    steps = stage.steps(trajectory)
    assert [step.parent_step_id for step in steps] == [None, None]


@token_in
def test_pydantic_ai_has_answers_by_a_demanded_call(stage):
    stage.engine.script = [LOOK, turn(call("final_result", colour="blue"))]
    seen, trajectory = saw(stage, "pydantic_ai", "demanded")
    assert seen == {"colour": "blue"}
    steps = stage.steps(trajectory, source="engine")
    assert [tool_names(step) for step in steps] == [["look", "final_result"]] * 2
    assert [step.sampling.tool_choice for step in steps] == ["required"] * 2


@token_in
def test_pydantic_ai_has_answers_by_a_schema(stage):
    stage.engine.script = [LOOK, '{"colour": "blue"}']
    seen, trajectory = saw(stage, "pydantic_ai", "schema")
    assert seen == {"colour": "blue"}
    check_looking(stage.steps(trajectory))


@token_in
def test_pydantic_ai_streams(stage):
    stage.engine.script = [turn(call("look", place="here"), call("look", place="数"), think="Where?"), "It is blue."]
    seen, trajectory = saw(stage, "pydantic_ai", "streamed")
    assert "".join(seen) == "It is blue."
    assert len(seen) > 3
    check_looking(stage.steps(trajectory))


@token_in
@pytest.mark.parametrize("dialect", ["anthropic", "responses"])
def test_pydantic_ai_speaks_other_apis(stage, dialect):
    stage.engine.script = [LOOK, "It is blue."]
    seen, trajectory = saw(stage, "pydantic_ai", dialect)
    assert seen == "It is blue."
    steps = stage.steps(trajectory)
    check_looking(steps)
    assert {step.dialect for step in steps} == {dialect}
