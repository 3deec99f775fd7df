"""Generated requests for every dialect: valid ones, and what mutation, truncation and malice make of them."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from typing import Any, NamedTuple

Json = Any
DEEP = 200
"""Deeper than what is taken."""


class Call(NamedTuple):
    """One request. `kind`: how it was made."""

    path: str
    data: bytes
    kind: str


def generate(rng: random.Random) -> Call:
    """The next request of a seeded stream of them."""
    path, make = rng.choice(DIALECTS)
    body = make(rng)
    kind = rng.choices(("valid", "mutated", "truncated", "hostile"), (4, 4, 1, 1))[0]
    if kind == "mutated":
        for _ in range(rng.randint(1, 3)):
            body = _mutate(rng, body)
    data = json.dumps(body, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")
    if kind == "truncated":
        data = data[: rng.randrange(len(data))]
    elif kind == "hostile":
        data = _hostile(rng, data)
    return Call(path, data, kind)


def follow(rng: random.Random, call: Call, reply: dict[str, Json]) -> Call | None:
    """The next turn of the conversation that `call` asked and `reply` went on with; None where there can be none."""
    body = json.loads(call.data)
    further = {"role": "user", "content": _text(rng)}
    if call.path == "/v1/chat/completions":
        said = reply["choices"][0]["message"]
        results = [
            {"role": "tool", "content": _text(rng), "tool_call_id": call["id"]} for call in said.get("tool_calls") or ()
        ]
        body["messages"] += [said, *results, further]
    elif call.path == "/v1/messages":
        results = [
            {"type": "tool_result", "tool_use_id": block["id"], "content": _text(rng)}
            for block in reply["content"]
            if block["type"] == "tool_use"
        ]
        content = [*results, {"type": "text", "text": further["content"]}]
        body["messages"] += [{"role": "assistant", "content": reply["content"]}, {"role": "user", "content": content}]
    elif call.path == "/v1/responses" and rng.random() < 0.5:
        body["previous_response_id"], body["input"] = reply["id"], [further]
    elif call.path == "/v1/responses":
        given = body["input"] if isinstance(body["input"], list) else [{"role": "user", "content": body["input"]}]
        body["input"] = [*given, *reply["output"], further]
    else:
        return None
    return Call(call.path, json.dumps(body).encode("utf-8", "surrogatepass"), "further")


def _text(rng: random.Random) -> str:
    return rng.choice(
        ("hi", "", "für 数 🙂", "<|im_end|>", "<think>", "</tool_call>", "\x00", "\n", " ", "a" * 300, "{}", "x\u2028y")
    )


def _some(rng: random.Random, make: Callable[[random.Random], Json], most: int = 3) -> list[Json]:
    return [make(rng) for _ in range(rng.randint(0, most))]


def _maybe(rng: random.Random, **fields: Callable[[], Json]) -> dict[str, Json]:
    return {name: make() for name, make in fields.items() if rng.random() < 0.3}


def _sampling(rng: random.Random) -> dict[str, Json]:
    return _maybe(
        rng,
        temperature=lambda: rng.choice((0, 0.7, 1, 2)),
        top_p=lambda: rng.choice((0.1, 1)),
        stop=lambda: rng.choice(("x", ["x", "yy"], [])),
        seed=lambda: rng.randint(-5, 5),
        presence_penalty=lambda: rng.choice((0, 1, -2)),
        logit_bias=lambda: {"5": rng.choice((-1, 3.5))},
        top_k=lambda: rng.choice((-1, 0, 5)),
        stream=lambda: rng.random() < 0.5,
        user=lambda: _text(rng),
    )


def _arguments(rng: random.Random) -> str:
    return rng.choice(('{"a": 1}', "{}", "", "[]", "123", "null", "mkdir -p test/{test1,test2", '{"a": "\\u0000"}'))


def _function(rng: random.Random) -> dict[str, Json]:
    more = _maybe(rng, description=lambda: _text(rng))
    return {"name": rng.choice(("look", "run")), "parameters": {"type": "object"}, **more}


def _chat_message(rng: random.Random) -> dict[str, Json]:
    role = rng.choice(("system", "developer", "user", "user", "assistant", "tool"))
    if role == "tool":
        return {"role": role, "content": _text(rng), "tool_call_id": rng.choice(("call_0", "c" * 200))}
    content: Json = rng.choice((_text(rng), [{"type": "text", "text": _text(rng)}]))
    message: dict[str, Json] = {"role": role, "content": content}
    if role == "assistant":
        message |= _maybe(
            rng,
            content=lambda: rng.choice((None, "", [])),
            reasoning=lambda: _text(rng),
            reasoning_content=lambda: _text(rng),
            tool_calls=lambda: _some(
                rng, lambda r: {"id": "call_0", "function": {"name": "look", "arguments": _arguments(r)}}
            ),
        )
    return message


def chat(rng: random.Random) -> dict[str, Json]:
    """A body of chat completions."""
    messages = [*_some(rng, _chat_message, 5), {"role": "user", "content": _text(rng)}]
    more = _maybe(
        rng,
        tools=lambda: _some(rng, lambda r: {"type": "function", "function": _function(r)}),
        tool_choice=lambda: rng.choice(("auto", "none")),
        n=lambda: rng.randint(1, 3),
        logprobs=lambda: True,
        max_completion_tokens=lambda: rng.randint(1, 20),
        stream_options=lambda: {"include_usage": True},
    )
    return {"model": "m", "messages": messages, **_sampling(rng), **more}


def completions(rng: random.Random) -> dict[str, Json]:
    """A body of completions."""
    prompt = rng.choice(("once", ["once"], [72, 73], [[72, 73]], _text(rng)))
    more = _maybe(rng, n=lambda: rng.randint(1, 3), logprobs=lambda: rng.randint(0, 3), echo=lambda: False)
    return {"model": "m", "prompt": prompt, "max_tokens": rng.randint(1, 20), **_sampling(rng), **more}


def _item(rng: random.Random) -> dict[str, Json]:
    kind = rng.choice(("message", "message", "reasoning", "function_call", "function_call_output", "custom_tool_call"))
    if kind == "message":
        role = rng.choice(("user", "assistant", "developer", "system"))
        part = "output_text" if role == "assistant" else "input_text"
        return {"type": kind, "role": role, "content": rng.choice((_text(rng), [{"type": part, "text": _text(rng)}]))}
    if kind == "reasoning":
        return {"type": kind, "summary": [], "content": [{"type": "reasoning_text", "text": _text(rng)}]}
    if kind == "function_call":
        return {"type": kind, "call_id": "c1", "name": "look", "arguments": _arguments(rng)}
    if kind == "custom_tool_call":
        return {"type": kind, "call_id": "c1", "name": "patch", "input": _text(rng)}
    return {"type": kind, "call_id": rng.choice(("c1", "c" * 200)), "output": _text(rng)}


def responses(rng: random.Random) -> dict[str, Json]:
    """A body of Responses."""
    given: Json = rng.choice(("hi", [*_some(rng, _item, 5), {"role": "user", "content": _text(rng)}]))
    more = _maybe(
        rng,
        instructions=lambda: _text(rng),
        tools=lambda: _some(
            rng, lambda r: r.choice(({"type": "function", **_function(r)}, {"type": "custom", "name": "patch"}))
        ),
        include=lambda: ["reasoning.encrypted_content", "message.output_text.logprobs"],
        max_output_tokens=lambda: rng.randint(1, 20),
        text=lambda: {"format": {"type": "text"}},
        reasoning=lambda: {"summary": "auto"},
        store=lambda: False,
        metadata=lambda: {"a": _text(rng)},
        previous_response_id=lambda: rng.choice(("resp_x", f"resp_exc_{'0' * 26}")),
    )
    return {"model": "m", "input": given, **_sampling(rng), **more}


def _block(rng: random.Random) -> dict[str, Json]:
    return rng.choice(
        (
            {"type": "text", "text": _text(rng), "cache_control": {"type": "ephemeral"}},
            {"type": "tool_result", "tool_use_id": "c1", "content": _text(rng), "is_error": True},
        )
    )


def messages(rng: random.Random) -> dict[str, Json]:
    """A body of Anthropic Messages."""
    past: list[Json] = []
    for _ in range(rng.randint(0, 3)):
        past.append({"role": "user", "content": rng.choice((_text(rng), _some(rng, _block)))})
        said = [
            {"type": "thinking", "thinking": _text(rng), "signature": "s"},
            {"type": "text", "text": _text(rng)},
            {"type": "tool_use", "id": "c1", "name": "look", "input": {"a": _text(rng)}},
        ]
        past.append({"role": "assistant", "content": rng.sample(said, rng.randint(1, 3))})
    sampling = _sampling(rng)
    body = {name: sampling[name] for name in ("temperature", "top_p", "stream") if name in sampling}
    more = _maybe(
        rng,
        system=lambda: rng.choice((_text(rng), [{"type": "text", "text": _text(rng)}])),
        tools=lambda: _some(rng, lambda r: {"name": "look", "input_schema": {"type": "object"}}),
        stop_sequences=lambda: ["x"],
        thinking=lambda: {"type": "enabled", "budget_tokens": 1024},
        metadata=lambda: {"user_id": _text(rng)},
    )
    last = {"role": "user", "content": _text(rng)}
    return {"model": "m", "max_tokens": rng.randint(1, 20), "messages": [*past, last], **body, **more}


DIALECTS: tuple[tuple[str, Callable[[random.Random], dict[str, Json]]], ...] = (
    ("/v1/chat/completions", chat),
    ("/v1/completions", completions),
    ("/v1/responses", responses),
    ("/v1/messages", messages),
)

STRANGE: tuple[Json, ...] = (
    *(None, True, False, 0, -1, 1.5, 1e308, 2**63, 2**64, -(2**63) - 1, "", "auto", "\x00", "\ud800", "x" * 5000),
    *([], {}, [[]], [None], {"": ""}, [{}], {"type": None}, {"type": "text"}, {"type": "image"}, ["a", 1]),
)


def _mutate(rng: random.Random, body: Json) -> Json:
    """The body with one place changed: another value, gone, renamed, doubled or moved one level down."""
    body = copy.deepcopy(body)
    places: list[tuple[Json, Json]] = []
    waiting = [body]
    while waiting:
        value = waiting.pop()
        keys = list(value) if isinstance(value, dict) else range(len(value))
        for key in keys:
            places.append((value, key))
            if isinstance(value[key], dict | list):
                waiting.append(value[key])
    if not places:
        return body
    holder, key = rng.choice(places)
    how = rng.randrange(5)
    if how == 1:
        del holder[key]
    elif how == 2 and isinstance(holder, dict):
        holder[rng.choice(("type", "role", "content", "unheard_of", ""))] = holder.pop(key)
    elif how == 3 and isinstance(holder, list):
        holder.extend([holder[key]] * 3)
    elif how == 4:
        holder[key] = [holder[key]]
    else:
        holder[key] = copy.deepcopy(rng.choice(STRANGE))
    return body


def _hostile(rng: random.Random, data: bytes) -> bytes:
    how = rng.randrange(7)
    if how == 0:
        return rng.randbytes(rng.randint(0, 200))
    if how == 1:
        return b"[" * rng.choice((DEEP, 50_000))
    if how == 2:
        return b'{"messages": ' * DEEP + b"1" + b"}" * DEEP
    if how == 3:
        return data.replace(b'"m"', b"[" * DEEP + b"]" * DEEP, 1)
    if how == 4:
        return data.replace(b"1", b"9" * rng.choice((25, 5000)))
    if how == 5:
        return data.replace(b'"hi"', b'"\\ud800"').replace(b"0", b"NaN")
    place = rng.randrange(len(data))
    return data[:place] + rng.randbytes(3) + data[place:]
