"""What is read quickly is read as the general reader reads it; what is unusual or broken is left to that one."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentworld.dialects.exchange import Delta
from agentworld.engines import whole_replies
from agentworld.engines.openai_wire import NO_KEY, body_reader, decode, read_body
from agentworld.engines.quick_replies import READERS
from agentworld.engines.whole_replies import WholeDelta, ids_of, read_whole
from agentworld.errors import AgentWorldError
from tests.examples import examples

NUMBER = st.one_of(st.integers(-2, 3), st.sampled_from([2**32 - 1, 2**32, 2**63, -9999.0, -0.5, 1.0, 1e308, True]))
ODD = st.one_of(st.none(), NUMBER, st.text(max_size=3), st.just([]), st.just({}), st.lists(NUMBER, max_size=3))
IDS = st.lists(st.integers(0, 300), max_size=3)


def written(body, closely):
    """JSON as engines write it, or as it is read more easily."""
    return json.dumps(body, ensure_ascii=False, separators=(",", ":") if closely else None).encode()


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
        assert (delta.sequence.dtype, delta.numbers.dtype) == ("<u4", "f8")
        assert delta.highest == max(delta.logprobs)
        return Delta(**{name: getattr(delta, name) for name in Delta.__struct_fields__})
    return delta


@pytest.mark.parametrize("kind", ["chat", "completions"])
@settings(max_examples=examples(400), deadline=None)
@given(data=st.data())
def test_both_readers_read_alike(kind, data):
    body = written(data.draw(BODIES[kind]), data.draw(st.booleans()))
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
@given(of_choice=some_of(CHOICE), of_body=some_of(BODY), closely=st.booleans())
def test_a_reply_in_one_piece_is_read_as_any(of_choice, of_body, closely):
    body = written({**WHOLE, "choices": [{**WHOLE["choices"][0], **of_choice}], **of_body}, closely)
    general = read(lambda: read_body(decode(body), kind="chat", entries=False))
    assert read(lambda: body_reader(NO_KEY, kind="chat", entries=False)(body)) == general


def test_a_usual_reply_in_one_piece_is_kept_in_arrays():
    (delta,) = READERS["chat"](written(WHOLE, closely=True))
    assert isinstance(delta, WholeDelta)
    assert (delta.text, delta.sequence.tolist(), delta.highest) == ("ab", [1, 2, 3, 97, 98], -0.25)


LISTS = st.lists(st.integers(0, 2**33), min_size=1).map(lambda ids: ",".join(map(str, ids)))
BROKEN_LISTS = st.lists(st.sampled_from([*'0123456789,-+. e]"\0', "00", ",,", "4294967296", "9" * 30]), max_size=8)


@settings(max_examples=examples(600), deadline=None)
@given(LISTS | BROKEN_LISTS.map("".join))
def test_ids_are_read_where_they_are_json_and_below_a_thousand_million(said):
    try:
        ids = json.loads(f"[{said}]")
    except ValueError:
        ids = []
    good = bool(ids) and all(type(each) is int and 0 <= each < 10**9 for each in ids) and "[" not in said
    close = not set(said) - set("0123456789,")
    found = ids_of(said.encode())
    assert (None if found is None else found.tolist()) == (ids if good and close else None)


BYTES = written(WHOLE, closely=True)
PIECES = [b"]", b"[", b"{", b"}", b'"', b",", b":", b"\\", b" ", b"0", b"7", b"-", b"null"]
PIECES += [
    b'"token_ids":[5],',
    b'"logprobs":{"content":[',
    b']},"finish_reason":',
    b'"prompt_token_ids":[1],',
    b'"logprob":-1,',
]


@settings(max_examples=examples(2000), deadline=None)
@given(
    at=st.integers(0, len(BYTES)),
    cut=st.sampled_from([0, 0, 0, 1, 2, 9]),
    piece=st.sampled_from([b"", *PIECES]),
    more=st.sampled_from([None, *PIECES]),
)
def test_a_reply_in_one_piece_that_is_broken_anywhere_is_read_as_any(at, cut, piece, more):
    body = BYTES[:at] + piece + BYTES[at + cut :]
    if more is not None:
        body = body.replace(b'"content":"ab"', b'"content":' + json.dumps(more.decode("latin-1")).encode())
    general = read(lambda: read_body(decode(body), kind="chat", entries=False))
    assert read(lambda: body_reader(NO_KEY, kind="chat", entries=False)(body)) == general


@pytest.mark.parametrize("name", ["token_ids", "prompt_token_ids"])
def test_a_list_under_a_name_that_is_spelled_otherwise_as_well_is_left_to_the_general_reader(name):
    escaped = name.replace("token", "\\u0074oken")
    body = BYTES.replace(f'"{name}":'.encode(), f'"{escaped}":[4],"{name}":'.encode())
    assert read_whole(body) is None
    body = BYTES.replace(f'"{name}":['.encode(), f'"{name}":[8],"{escaped}":['.encode())
    assert read_whole(body) is None
    assert read_whole(BYTES) is not None


@pytest.mark.parametrize("tail", [".0", "e0", "E-0", ".5", "0", "[]"])
@pytest.mark.parametrize("end", ["[97,98]", "[1,2,3]"])
def test_what_is_no_json_behind_a_list_is_no_part_of_it(end, tail):
    body = BYTES.replace(end.encode(), f"{end}{tail}".encode())
    assert body != BYTES
    assert read_whole(body) is None
    assert float(whole_replies._MARK) != whole_replies._MARK  # So that `.0` behind it makes it another number.


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
