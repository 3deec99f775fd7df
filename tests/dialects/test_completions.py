"""The completions dialect: what is taken, what is refused and where, and how replies look."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentworld.dialects.completions import DEFAULT_MAX_TOKENS, HARMLESS, parse
from agentworld.dialects.completions_reply import CompletionsStream, response_body
from agentworld.dialects.exchange import Choice, Delta, Reply, Request
from agentworld.errors import EngineError, InvalidRequestError
from agentworld.records import Message, Usage


def refused(**body: Any) -> InvalidRequestError:
    with pytest.raises(InvalidRequestError) as caught:
        parse({"prompt": "x", **body})
    return caught.value


@pytest.mark.parametrize("prompt", ["once", ["once"]])
def test_a_text_is_on_record_as_a_message(prompt: Any) -> None:
    request = parse({"prompt": prompt})
    assert (request.prompt, request.messages) == ("once", (Message(role="user", content="once"),))
    assert request.notes == {"completion": "text"}


@pytest.mark.parametrize("prompt", [[5, 6], [[5, 6]]])
def test_ids_are_ids(prompt: Any) -> None:
    request = parse({"prompt": prompt})
    assert (request.prompt, request.messages, request.notes) == ((5, 6), (), {"completion": "ids"})


@pytest.mark.parametrize(
    "prompt", [None, "", [], [""], [[]], ["a", "b"], [[1], [2]], [1, "a"], [1.5], [True], [-1], [2**32], 3, {}, [None]]
)
def test_other_prompts_are_refused(prompt: Any) -> None:
    assert refused(prompt=prompt).path == "prompt"


def test_several_prompts_are_refused_with_what_to_do() -> None:
    assert refused(prompt=["a", "b"]).hint == "Send one call for each prompt"


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"echo": True}, "echo"),
        ({"suffix": "end"}, "suffix"),
        ({"best_of": 2}, "best_of"),
        ({"n": 2, "best_of": 3}, "best_of"),
        ({"logprobs": 21}, "logprobs"),
        ({"logprobs": True}, "logprobs"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"prompt_logprobs": 1}, "prompt_logprobs"),
        ({"use_beam_search": True}, "use_beam_search"),
        ({"skip_special_tokens": False}, "skip_special_tokens"),
        ({"tools": [{}]}, "tools"),
        ({"parallel_tool_calls": True}, "parallel_tool_calls"),
        ({"messages": []}, "messages"),
    ],
)
def test_what_would_change_the_reply_is_refused_by_place(fields: dict[str, Any], path: str) -> None:
    assert refused(**fields).path == path


def test_what_asks_for_nothing_is_taken() -> None:
    fields = {"echo": False, "suffix": "", "best_of": 2, "n": 2, "ignore_eos": False, "logprobs": None}
    request = parse({"prompt": "x", **fields, **dict.fromkeys(HARMLESS, "x")})
    assert (request.sampling.n, request.logprobs) == (2, False)


def test_the_limit_of_the_api_holds_where_none_is_set() -> None:
    assert parse({"prompt": "x"}).sampling.max_tokens == DEFAULT_MAX_TOKENS
    assert parse({"prompt": "x", "min_tokens": 20}).sampling.max_tokens == 20
    assert parse({"prompt": "x", "max_tokens": 3}).sampling.max_tokens == 3


def test_log_probabilities() -> None:
    request = parse({"prompt": "x", "logprobs": 0})
    assert (request.logprobs, request.top_logprobs) == (True, 0)
    assert parse({"prompt": "x", "logprobs": 4}).top_logprobs == 4


ENTRIES = [{"token": "ab", "logprob": -0.5, "tops": {"ab": -0.5}}, {"token": "c", "logprob": None, "tops": {}}]


def reply(*texts: str, entries: list[dict[str, Any]] | None = None) -> Reply:
    choices = [
        Choice(
            index=at,
            message=Message(role="assistant", content=text),
            finish_reason="stop",
            ids=[7, 8],
            logprobs=[entry.get("logprob") for entry in entries] if entries is not None else None,
            entries=entries,
        )
        for at, text in enumerate(texts)
    ]
    return Reply(reply_id="cmpl-1", model="m", created=1, choices=choices, prompt_ids=[1], usage=Usage(1, 2))


def test_the_body() -> None:
    body = response_body(parse({"prompt": "x", "return_token_ids": True}), reply("abc", "d"))
    assert (body["id"], body["object"], body["usage"]["total_tokens"]) == ("cmpl-1", "text_completion", 3)
    assert [(choice["index"], choice["text"], choice["logprobs"]) for choice in body["choices"]] == [
        (0, "abc", None),
        (1, "d", None),
    ]
    assert (body["choices"][0]["token_ids"], body["choices"][0]["prompt_token_ids"]) == ([7, 8], [1])
    assert "token_ids" not in response_body(parse({"prompt": "x"}), reply("a"))["choices"][0]


def test_log_probabilities_in_the_body() -> None:
    body = response_body(parse({"prompt": "x", "logprobs": 1}), reply("abc", entries=ENTRIES))
    assert body["choices"][0]["logprobs"] == {
        "tokens": ["ab", "c"],
        "token_logprobs": [-0.5, None],
        "top_logprobs": [{"ab": -0.5}, {}],
        "text_offset": [0, 2],
    }


def test_log_probabilities_of_an_engine_that_gives_no_texts() -> None:
    end = reply("abc", entries=[{"tops": {"ab": -0.5}}])
    end.choices[0].logprobs = [-0.5, None]
    found = response_body(parse({"prompt": "x", "logprobs": 1}), end)["choices"][0]["logprobs"]
    assert found == {
        "tokens": ["", ""],
        "token_logprobs": [-0.5, None],
        "top_logprobs": [{"ab": -0.5}, {}],
        "text_offset": [0, 0],
    }


def chunks(data: bytes) -> list[dict[str, Any]]:
    lines = data.decode().split("\n\n")
    assert lines[-2:] == ["data: [DONE]", ""]
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-2]]


def folded(found: list[dict[str, Any]], count: int, request: Request) -> dict[str, Any]:
    """The body that a client builds from the chunks."""
    choices: list[dict[str, Any]] = [
        {"index": at, "text": "", "logprobs": None, "finish_reason": None} for at in range(count)
    ]
    usage = None
    for chunk in found:
        usage = chunk.get("usage") or usage
        for piece in chunk["choices"]:
            choice = choices[piece["index"]]
            assert choice["finish_reason"] is None
            choice["text"] += piece["text"]
            choice["finish_reason"] = piece["finish_reason"]
            if piece["logprobs"] is not None:
                sofar = choice["logprobs"] or {name: [] for name in piece["logprobs"]}
                choice["logprobs"] = {name: sofar[name] + values for name, values in piece["logprobs"].items()}
    return {"choices": choices, "usage": usage}


@given(st.lists(st.tuples(st.integers(0, 1), st.text(max_size=4)), max_size=8))
def test_a_stream_folds_to_the_body_however_it_is_cut(pieces: list[tuple[int, str]]) -> None:
    request = parse({"prompt": "x", "n": 2, "logprobs": 0, "stream": True, "stream_options": {"include_usage": True}})
    writer, sent = CompletionsStream(request, "cmpl-1", "m", 1), b""
    texts, entries = ["", ""], [[], []]  # type: ignore[var-annotated]
    for at, text in pieces:
        entry = {"token": text, "logprob": -1.0, "tops": {}}
        sent += writer.delta(Delta(index=at, text=text, entries=[entry], logprobs=[-1.0], ids=[1]))
        texts[at] += text
        entries[at].append(entry)
    end = reply(*texts)
    for choice, own in zip(end.choices, entries, strict=True):
        choice.entries, choice.logprobs = own, [-1.0] * len(own)
    body = response_body(request, end)
    for choice in body["choices"]:
        choice["logprobs"] = choice["logprobs"] if choice["logprobs"]["tokens"] else None
    found = folded(chunks(sent + writer.finish(end)), 2, request)
    assert found == {"choices": body["choices"], "usage": body["usage"]}


def test_ids_in_a_stream_come_once_for_the_prompt() -> None:
    writer = CompletionsStream(parse({"prompt": [1], "return_token_ids": True}), "cmpl-1", "m", 1)
    sent = [writer.delta(Delta(text="a", ids=[at], prompt_ids=[1])) for at in (7, 8)]
    found = [json.loads(data.decode().removeprefix("data: "))["choices"][0] for data in sent]
    assert [(piece["token_ids"], piece.get("prompt_token_ids")) for piece in found] == [([7], [1]), ([8], None)]
    assert writer.delta(Delta()) == b""


def test_a_failure_in_the_stream_is_an_error() -> None:
    sent = CompletionsStream(parse({"prompt": "x"}), "cmpl-1", "m", 1).fail(EngineError("it broke"))
    assert json.loads(sent.decode().removeprefix("data: "))["error"]["code"] == "engine_error"


@pytest.mark.parametrize("value", [2**63, 10**400, 1e308])
def test_numbers_that_no_pool_holds_are_refused(value: float) -> None:
    assert refused(max_tokens=value).path == "max_tokens"
    assert refused(top_k=value).path == "top_k"
