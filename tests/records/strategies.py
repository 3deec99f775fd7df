"""Hypothesis strategies for records."""

from hypothesis import strategies as st

from agentworld.records import FunctionCall, MediaPart, Message, TextPart, ToolCall

texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=30)
arguments = st.one_of(
    st.sampled_from(['{"a": 1, "b": [2]}', '{"b":[2],"a":1}', "[]", "123", "null", "mkdir -p t/{a,b", ""]), texts
)
tool_calls = st.builds(
    lambda name, args, number: ToolCall(f"call_{number}", FunctionCall(name, args)),
    st.sampled_from(["add", "read", "übung"]),
    arguments,
    st.integers(0, 3),
)
parts = st.one_of(
    st.builds(TextPart, texts), st.builds(MediaPart, st.sampled_from(["00" * 16, "ab" * 16]), st.just("image/png"))
)
contents = st.one_of(st.none(), texts, st.lists(parts, max_size=3).map(tuple))
messages = st.builds(
    Message,
    role=st.sampled_from(["system", "developer", "user", "assistant", "tool"]),
    content=contents,
    reasoning=st.one_of(st.none(), texts),
    tool_calls=st.lists(tool_calls, max_size=2).map(tuple),
    tool_call_id=st.one_of(st.none(), st.just("call_0")),
    name=st.one_of(st.none(), st.just("n")),
)
conversations = st.lists(messages, min_size=1, max_size=6)
token_ids = st.lists(st.integers(0, 2**32 - 1), max_size=600)
