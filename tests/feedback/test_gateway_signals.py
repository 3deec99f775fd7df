"""Implicit signals of calls as clients send them: through the gateway, matched and stored as it does."""

import pytest

from agentworld.config import ModelSettings
from agentworld.feedback.corrections import corrections
from agentworld.feedback.following import derive
from agentworld.testing import ScriptedEngine
from tests.api.serving import Serving

USER = {"role": "user", "content": "Where is it?"}
MORE = {"role": "user", "content": "And then?"}
REPLY = "It is in the left drawer of the desk, below number {}."


@pytest.fixture
def gateway():
    with ScriptedEngine(lambda request: REPLY.format(request.call), model="m") as engine:
        model = ModelSettings(name="m", upstream=engine.url, driver="builtin", tokens="engine")
        with Serving(models=(model,)) as server:
            yield server


def ask(server, *messages, **headers):
    """One call of the trajectory t; the reply's message and its step."""
    sent = {"model": "m", "messages": list(messages)}
    status, answered, body = server.send("POST", "/t/t/v1/chat/completions", sent, headers)
    assert status == 200
    return body["choices"][0]["message"], answered["x-agentworld-step"]


def end(server, status="finished"):
    assert server.post("/api/v1/trajectories/t/complete", {"status": status})[0] == 200


def test_a_reply_that_is_asked_for_again_and_gone_on_with_is_preferred(gateway):
    _, first = ask(gateway, USER)
    again, second = ask(gateway, USER)
    ask(gateway, USER, again, MORE)
    end(gateway)
    assert derive(gateway.pool).signals == {"implicit:regenerate": 1}
    (one,) = gateway.pool.list_feedback().items
    assert (one.step_id, one.other_id) == (second, first)


def test_a_retry_of_a_client_prefers_nothing(gateway):
    ask(gateway, USER)
    again, _ = ask(gateway, USER, **{"x-stainless-retry-count": "1"})
    ask(gateway, USER, again, MORE)
    end(gateway)
    assert derive(gateway.pool).signals.total() == 0


def test_a_reply_that_is_sent_back_changed_is_a_correction(gateway):
    reply, first = ask(gateway, USER)
    edited = reply["content"].replace("left", "right")
    ask(gateway, USER, {"role": "assistant", "content": edited}, MORE)
    end(gateway)
    assert derive(gateway.pool).signals == {"implicit:edit": 1}
    (row,) = corrections(gateway.pool)
    assert (row.step_id, row.chosen.text, row.rejected.text) == (first, edited, reply["content"])
    assert [message.text for message in row.prompt] == [USER["content"]]


def test_a_conversation_that_goes_on_as_it_was_says_nothing(gateway):
    reply, _ = ask(gateway, USER)
    other, _ = ask(gateway, USER, reply, MORE)
    ask(
        gateway, USER, {"role": "assistant", "content": [{"type": "text", "text": reply["content"]}]}, MORE, other, MORE
    )
    end(gateway)
    assert derive(gateway.pool).signals.total() == 0


def test_an_abandoned_one_is_labelled(gateway):
    ask(gateway, USER)
    end(gateway, "abandoned")
    assert derive(gateway.pool).signals == {"implicit:abandon": 1}
    assert gateway.get("/api/v1/trajectories/t")[1]["labels"] == {"implicit.abandoned": "after_reply"}
