"""Bodies of chats whose ends are kept say what bodies say that are made anew."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from agentworld.config import ModelSettings
from agentworld.dialects.chat_reply import wire_messages
from agentworld.dialects.exchange import KeptTools, Request
from agentworld.engines.base import explicit
from agentworld.engines.vllm import BuiltinEngine, VllmEngine, sampling_body
from agentworld.records import Message, Sampling, Tool
from tests.examples import examples

_TOOLS: tuple[Tool, ...] = tuple({"type": "function", "function": {"name": name}} for name in ("look", "go"))
_KEPT = KeptTools(_TOOLS)
_MESSAGES = st.lists(
    st.builds(Message, role=st.sampled_from(["system", "user", "developer"]), content=st.text(max_size=4)), min_size=1
).map(tuple)
_SAMPLING = st.builds(
    Sampling,
    temperature=st.sampled_from([None, 0.5]),
    top_k=st.sampled_from([None, 0, 3]),
    max_tokens=st.sampled_from([None, 7]),
    stop=st.sampled_from([(), ("x",)]),
    tool_choice=st.sampled_from([None, "auto"]),
    parallel_tool_calls=st.sampled_from([None, False]),
)
_REQUEST = st.builds(
    Request,
    dialect=st.just("chat"),
    model=st.just("m"),
    messages=_MESSAGES,
    tools=st.sampled_from([(), _KEPT, KeptTools(_TOOLS[:1]), _TOOLS]),
    sampling=_SAMPLING,
    stream=st.booleans(),
    top_logprobs=st.sampled_from([0, 2]),
    template=st.sampled_from([{}, {"enable_thinking": False}]),
    continue_final=st.booleans(),
)


def _anew(engine: VllmEngine, request: Request) -> bytes:
    body: dict[str, Any] = {
        "model": engine.settings.name,
        "messages": wire_messages(request, developer=False),
        **sampling_body(explicit(request.sampling)),
        "logprobs": True,
        "top_logprobs": request.top_logprobs,
        "return_token_ids": True,
        "stream": request.stream,
    }
    if request.stream:
        body["stream_options"] = {"include_usage": True}
    body |= engine.more
    if request.tools:
        body["tools"] = list(request.tools)
        if request.sampling.tool_choice is not None:
            body["tool_choice"] = request.sampling.tool_choice
        if request.sampling.parallel_tool_calls is not None:
            body["parallel_tool_calls"] = request.sampling.parallel_tool_calls
    if request.template:
        body["chat_template_kwargs"] = request.template
    if request.continue_final:
        body |= {"add_generation_prompt": False, "continue_final_message": True}
    return msgspec.json.encode(body)


_ENGINES = [kind(ModelSettings(name='a"b', upstream="http://127.0.0.1:1"), 1.0) for kind in (VllmEngine, BuiltinEngine)]
_SENT: list[tuple[str, bytes, bool]] = []
for _engine in _ENGINES:
    _engine.connection.posted = lambda path, body, stream, read: _SENT.append((path, body, stream))  # type: ignore


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(_REQUEST, min_size=1, max_size=4), st.sampled_from(_ENGINES))
def test_a_kept_end_says_what_one_says_that_is_made_anew(requests: list[Request], engine: VllmEngine) -> None:
    for request in (*requests, *requests):
        engine.chat(request)
        assert _SENT.pop() == ("/v1/chat/completions", _anew(engine, request), request.stream)
