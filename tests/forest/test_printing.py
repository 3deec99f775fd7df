from agentworld.forest import render_tree
from agentworld.records import FunctionCall, MediaPart, Message, Step, TextPart, ToolCall


def step(number, prompt, reply, parent=None, **more):
    return Step(
        step_id=f"s{number}",
        trajectory_id="t",
        parent_step_id=parent,
        prompt_messages=prompt,
        response_message=reply,
        **more,
    )


U = Message("user", "u")
CALL = Message("assistant", "r", tool_calls=(ToolCall("c", FunctionCall("call", "{}")),))
RESULT = Message("tool", "4", tool_call_id="c")
ANSWER = Message("assistant", "four", reasoning="so")


def test_a_run_with_a_tool_reads_straight_down():
    steps = [step(0, [U], CALL), step(1, [U, CALL, RESULT], ANSWER, "s0")]
    assert render_tree(steps) == "<usr> u </usr> <gen> [r:call]\n<tool> 4 </tool> <gen> [(so) four]"


def test_branches_are_indented_and_carry_their_reason():
    steps = [
        step(0, [U], CALL),
        step(1, [U, CALL, RESULT], ANSWER, "s0"),
        step(2, [U, CALL, RESULT], ANSWER, "s0", fork_reason="parallel"),
        step(3, [Message("system", "b"), U], ANSWER, fork_reason="subagent", excluded_reason="late"),
    ]
    assert render_tree(steps).splitlines() == [
        "<usr> u </usr> <gen> [r:call]",
        "  <tool> 4 </tool> <gen> [(so) four]",
        "  <tool> 4 </tool> <gen> [(so) four] (parallel)",
        "<sys> b </sys> <usr> u </usr> <gen> (so) four (subagent) (excluded: late)",
    ]


def test_long_texts_are_cut_and_media_named():
    prompt = [Message("user", (TextPart("x" * 50), MediaPart("ab" * 16, "image/png")))]
    assert render_tree([step(0, prompt, None)]) == f"<usr> {'x' * 39}… <image/png abababab> </usr> <gen> [?]"


def test_what_tools_are_called_with_is_shown_as_far_as_it_is_asked_for():
    call = Message("assistant", "r", tool_calls=(ToolCall("c", FunctionCall("call", '{"a":\n [1, 2, 3]}')),))
    assert render_tree([step(0, [U], call)], arguments=20) == '<usr> u </usr> <gen> [r:call({"a": [1, 2, 3]})]'
    assert render_tree([step(0, [U, call], CALL)], arguments=8).split(" <gen> ") == [
        '<usr> u </usr> <ast> r:call({"a": […) </ast>',
        "[r:call({})]",
    ]
