"""What is read quickly is read as the general reader reads it; what is unusual or broken is left to that one."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentworld.dialects.exchange import Delta
from agentworld.engines.openai_wire import NO_KEY, body_reader, decode, read_body
from agentworld.engines.quick_replies import READERS, WholeDelta
from agentworld.errors import AgentWorldError
from tests.examples import examples

NUMBER = st.one_of(st.integers(-2, 3), st.sampled_from([2**32 - 1, 2**32, 2**63, -9999.0, -0.5, 1.0, 1e308, True]))
ODD = st.one_of(st.none(), NUMBER, st.text(max_size=3), st.just([]), st.just({}), st.lists(NUMBER, max_size=3))
IDS = st.lists(st.integers(0, 300), max_size=3)


def mostly(usual):
    """The usual value, seldom anything else."""
    return st.integers(0, 19).flatmap(lambda number: ODD if number == 0 else usual)


def an_object(**usual):
    return mostly(st.fixed_dictionaries({}, optional={name: mostly(value) for name, value in usual.items()}))


TEXT = st.one_of(st.none(), st.text(max_size=4))
CALL = an_object(index=st.integers(0, 2), id=TEXT, type=TEXT, function=an_object(name=TEXT, arguments=TEXT))
MESSAGE = an_object(
    role=TEXT,
    content=TEXT,
    refusal=TEXT,
    reasoning=TEXT,
    reasoning_content=TEXT,
    tool_calls=st.lists(CALL, max_size=2),
    provider_specific_fields=st.none(),
)
LOGPROB = st.one_of(st.none(), st.floats(-12, 0), st.just(-9999.0))
CHAT_LOGPROBS = an_object(content=st.lists(an_object(token=TEXT, logprob=LOGPROB, bytes=IDS), max_size=3))
TEXT_LOGPROBS = an_object(token_logprobs=st.lists(LOGPROB, max_size=3), tokens=st.lists(TEXT, max_size=3))
COMMON = {
    "index": st.integers(0, 3),
    "token_ids": IDS,
    "prompt_token_ids": IDS,
    "finish_reason": TEXT,
    "stop_reason": st.one_of(st.none(), st.text(max_size=2), st.integers(0, 9)),
    "version_spans": st.one_of(st.none(), st.just([[0, 1], [2, 3]])),
}
CHOICES = {
    "chat": an_object(**COMMON, message=MESSAGE, delta=MESSAGE, logprobs=CHAT_LOGPROBS),
    "completions": an_object(**COMMON, text=TEXT, logprobs=TEXT_LOGPROBS),
}
BODIES = {
    kind: an_object(
        choices=st.lists(choice, max_size=2),
        usage=an_object(prompt_tokens=st.integers(0, 9), completion_tokens=st.integers(0, 9)),
        prompt_token_ids=IDS,
        logprobs_mode=TEXT,
        policy_version=st.integers(0, 9),
        policy_run=TEXT,
        error=st.none(),
    )
    for kind, choice in CHOICES.items()
}


def read(reader):
    """What a reader says, free of how it keeps it beside that."""
    try:
        return [as_any_piece(delta) for delta in reader()]
    except AgentWorldError as error:
        return type(error), error.message


def as_any_piece(delta):
    if isinstance(delta, WholeDelta):
        assert delta.sequence.tolist() == [*delta.prompt_ids, *delta.ids]
        assert delta.numbers.tolist() == delta.logprobs
        assert delta.highest == max(delta.logprobs)
        return Delta(**{name: getattr(delta, name) for name in Delta.__struct_fields__})
    return delta


@pytest.mark.parametrize("kind", ["chat", "completions"])
@settings(max_examples=examples(400), deadline=None)
@given(data=st.data())
def test_both_readers_read_alike(kind, data):
    body = json.dumps(data.draw(BODIES[kind])).encode()
    general = read(lambda: read_body(decode(body), kind=kind, entries=False))
    assert read(lambda: body_reader(NO_KEY, kind=kind, entries=False)(body)) == general


WHOLE = {
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "ab", "reasoning": None, "tool_calls": []},
            "logprobs": {"content": [{"token": "a", "logprob": -0.5}, {"token": "b", "logprob": -0.25}]},
            "finish_reason": "stop",
            "stop_reason": None,
            "token_ids": [97, 98],
        }
    ],
    "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
    "prompt_token_ids": [1, 2, 3],
}
CHOICE = {
    "index": st.integers(0, 1),
    "token_ids": IDS,
    "prompt_token_ids": IDS,
    "finish_reason": TEXT,
    "stop_reason": st.one_of(st.text(max_size=2), st.integers(0, 9)),
    "version_spans": st.just([[0, 1]]),
    "delta": MESSAGE,
    "message": MESSAGE,
    "logprobs": CHAT_LOGPROBS,
    "provider_specific_fields": st.just({"token_ids": [1]}),
}
BODY = {
    "usage": st.none(),
    "prompt_token_ids": IDS,
    "logprobs_mode": TEXT,
    "policy_version": st.integers(0, 9),
    "policy_run": TEXT,
    "version_spans": st.just([[0, 1]]),
    "error": st.just({"message": "no"}),
    "provider_specific_fields": st.just({"token_ids": [1]}),
}


def some_of(fields):
    """Another value for one or two of the fields, at times none at all."""
    one = st.sampled_from(sorted(fields)).flatmap(lambda name: st.tuples(st.just(name), mostly(fields[name])))
    return st.lists(one, max_size=2).map(dict)


@settings(max_examples=examples(600), deadline=None)
@given(of_choice=some_of(CHOICE), of_body=some_of(BODY))
def test_a_reply_in_one_piece_is_read_as_any(of_choice, of_body):
    body = json.dumps({**WHOLE, "choices": [{**WHOLE["choices"][0], **of_choice}], **of_body}).encode()
    general = read(lambda: read_body(decode(body), kind="chat", entries=False))
    assert read(lambda: body_reader(NO_KEY, kind="chat", entries=False)(body)) == general


def test_a_usual_reply_in_one_piece_is_kept_in_arrays():
    (delta,) = READERS["chat"](json.dumps(WHOLE).encode())
    assert isinstance(delta, WholeDelta)
    assert (delta.text, delta.sequence.tolist(), delta.highest) == ("ab", [1, 2, 3, 97, 98], -0.25)


USUAL = {
    "chat": {"index": 0, "delta": {"content": "a"}, "logprobs": {"content": [{"token": "a", "logprob": -0.5}]}},
    "completions": {"index": 0, "text": "a", "logprobs": {"token_logprobs": [-0.5], "tokens": ["a"]}},
}


@pytest.mark.parametrize("kind", ["chat", "completions"])
def test_what_engines_send_for_every_token_is_read_quickly(kind):
    body = {"id": "x", "choices": [{**USUAL[kind], "token_ids": [97], "finish_reason": None}], "usage": None}
    (delta,) = READERS[kind](json.dumps(body).encode())
    assert (delta.text, delta.ids, delta.logprobs) == ("a", [97], [-0.5])


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b"{",
        b'{"error": {"message": "no"}}',
        b'{"choices": [{"token_ids": [-1]}]}',
        b'{"choices": [{"token_ids": [1.0]}]}',
        b'{"choices": [{"version_spans": [[0, 1]]}]}',
        b'{"provider_specific_fields": {"token_ids": [1]}}',
    ],
)
def test_what_is_unusual_or_broken_is_left_to_the_general_reader(body):
    assert [reader(body) for reader in READERS.values()] == [None, None]
