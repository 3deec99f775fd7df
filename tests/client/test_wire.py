import msgspec
import pytest

from agentworld.client import wire
from agentworld.errors import (
    AgentWorldError,
    ConflictError,
    ContextLengthError,
    InvalidRequestError,
    NotFoundError,
    PoolFullError,
    StaleLeaseError,
)
from agentworld.records import FunctionCall, Message, ToolCall


@pytest.mark.parametrize("kind", [ConflictError, ContextLengthError, NotFoundError, PoolFullError, StaleLeaseError])
def test_an_error_comes_back_as_it_was(kind):
    sent = kind("what", path="$.where", hint="do this")
    back = wire.error_from(kind.status, msgspec.json.encode(sent.to_dict()), "http://x")
    assert type(back) is kind
    assert (back.message, back.path, back.hint) == ("what", "$.where", "do this")


def test_a_class_without_a_code_of_its_own_takes_none_from_its_base():
    from agentworld.client.absent import NotOverHttpError

    sent = InvalidRequestError("what")
    assert NotOverHttpError.code == sent.code
    assert type(wire.error_from(400, msgspec.json.encode(sent.to_dict()), "http://x")) is InvalidRequestError


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (404, b'{"error": {"message": "no model", "code": null, "param": "model"}}', NotFoundError),
        (409, b'{"error": {"message": "taken", "code": 409}}', ConflictError),
        (502, b"<html>Bad Gateway</html>", AgentWorldError),
        (500, b"", AgentWorldError),
        (500, b"\xff", AgentWorldError),
        (500, b'{"error": "no"}', AgentWorldError),
        (500, b"[1]", AgentWorldError),
    ],
)
def test_errors_of_others_are_read_by_their_status(status, body, kind):
    assert type(wire.error_from(status, body, "http://x")) is kind


def test_a_chat_reply_with_reasoning_and_tools():
    body = (
        b'{"choices": [{"finish_reason": "tool_calls", "message": {"role": "assistant", "content": null, '
        b'"refusal": null, "reasoning_content": "hm", "tool_calls": [{"id": "c", "type": "function", "index": 0,'
        b'"function": {"name": "look", "arguments": "{"}}]}}], "usage": {"prompt_tokens": 3, "completion_tokens": 2}}'
    )
    reply = wire.chat_reply(body)
    call = ToolCall(id="c", function=FunctionCall(name="look", arguments="{"))
    assert reply.message == Message(role="assistant", reasoning="hm", tool_calls=(call,))
    assert (reply.finish_reason, reply.usage.prompt_tokens) == ("tool_calls", 3)


@pytest.mark.parametrize("body", [b"{", b"{}", b'{"choices": []}', b'{"choices": [{"message": {"role": 1}}]}', b"[]"])
def test_what_is_no_chat_reply_is_an_error(body):
    with pytest.raises(AgentWorldError, match="not a chat completion"):
        wire.chat_reply(body)
