"""Whatever an engine does wrong: the right error in the caller's own shape, one exchange on record, nothing twice."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from agentworld.testing import ScriptedReply, WireFaults

from .fleet import Fleet, fleet

ROUTES = {
    "chat/completions": {"messages": [{"role": "user", "content": "hello"}]},
    "messages": {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 200},
    "completions": {"prompt": "hello"},
    "responses": {"input": "hello"},
}
TEXT = "für 数 and so on"


class Fault(NamedTuple):
    """What goes wrong; status and code that a caller is told; whether the same engine is asked again, and whether it
    has streamed something by then.
    """

    reply: ScriptedReply | None
    status: int
    code: str
    again: bool
    begun: bool = False


def wire(**faults: Any) -> ScriptedReply:
    return ScriptedReply(text=TEXT, faults=WireFaults(**faults))


def refusal(status: int) -> ScriptedReply:
    return ScriptedReply(status=status, error_body={"error": {"message": "no"}})


FAULTS = {
    "refuse": Fault(None, 503, "engine_unreachable", again=True),
    "reset": Fault(wire(drop_after=0), 502, "engine_error", again=True),
    "stall": Fault(ScriptedReply(text="x", first_token_delay=60.0), 504, "engine_timeout", again=False),
    "429": Fault(refusal(429), 429, "rate_limit_exceeded", again=True),
    "500": Fault(refusal(500), 502, "engine_error", again=False),
    "503": Fault(refusal(503), 503, "engine_unreachable", again=True),
    "half": Fault(wire(drop_after=6), 502, "engine_error", again=True, begun=True),
    "garbage": Fault(wire(malformed=True), 502, "engine_error", again=False, begun=True),
}


def has_begun(name: str, route: str, stream: bool) -> bool:
    """Whether the client has seen some of the reply. The second chunk is garbage; a chat's first one says nothing."""
    return stream and FAULTS[name].begun and (name != "garbage" or route == "completions")


async def call(gateway: Fleet, route: str, stream: bool, trajectory: str = "t1") -> tuple[int, str]:
    """Status and body of a call."""
    body = {**ROUTES[route], "stream": stream}
    async with gateway.http.post(f"{gateway.url}/t/{trajectory}/v1/{route}", json=body) as response:
        return response.status, await response.text()


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("name", FAULTS)
async def test_the_caller_is_told_and_one_failed_call_is_on_record(name: str, route: str, stream: bool) -> None:
    fault = FAULTS[name]
    timeout = {"upstream_timeout": 1.0} if name == "stall" else {}
    script = fault.reply or "never"
    async with fleet(script, serve=timeout, dead=[0] if fault.reply is None else []) as gateway:
        status, answer = await call(gateway, route, stream)
        begun = has_begun(name, route, stream)
        assert status == (200 if begun else fault.status)
        assert '"error"' in answer
        if begun:
            # What was shown cannot be taken back, and is not asked for again; no sign of an end follows.
            assert gateway.figures()[0].calls == 1
            for end in ("[DONE]", "message_stop", "response.completed", '"finish_reason":"stop"'):
                assert end not in answer
        else:
            assert gateway.figures()[0].calls == (3 if fault.again else 1)
            if route != "messages":
                assert f'"{fault.code}"' in answer
        assert gateway.steps("t1") == []
        (exchange,) = gateway.pool.list_exchanges("t1")
        assert exchange.error is not None
        assert (exchange.error["code"], exchange.error["status"]) == (fault.code, fault.status)
        trajectory = gateway.pool.get_trajectory("t1")
        assert (trajectory.status, trajectory.step_count) == ("open", 0)
        assert gateway.gateway.state.in_flight == 0
        assert gateway.figures()[0].in_flight == 0
        # The trajectory goes on with the next call.
        if fault.reply is not None:
            gateway.engine.script = "well"
            assert (await call(gateway, route, stream))[0] == 200
            assert len(gateway.steps("t1")) == 1


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("name", [name for name in FAULTS if name != "stall"])
async def test_another_engine_answers_and_nothing_is_stored_twice(name: str, route: str, stream: bool) -> None:
    fault = FAULTS[name]
    async with fleet(fault.reply or "never", "fine", dead=[0] if fault.reply is None else []) as gateway:
        trajectory = gateway.home(0)
        assert (await call(gateway, route, stream, trajectory))[0] == 200
        if has_begun(name, route, stream):
            assert gateway.calls() == [1, 0]
            assert gateway.steps(trajectory) == []
        else:
            (step,) = gateway.steps(trajectory)
            assert step.response_message is not None
            assert step.response_message.text == "fine"
            assert step.metadata["engine"] == gateway.upstreams[1].address
            assert step.excluded_reason is None
        assert len(gateway.pool.list_exchanges(trajectory)) == 1


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(
    ("faults", "reason"),
    [({"id_count": -1}, "quarantined"), ({"id_count": 2}, "quarantined"), ({"without_usage": True}, None)],
    ids=["ids missing", "ids too many", "no usage"],
)
async def test_what_is_answered_but_not_exact_is_stored_as_such(
    faults: dict[str, Any], reason: str | None, route: str, stream: bool
) -> None:
    async with fleet(wire(**faults), "never") as gateway:
        trajectory = gateway.home(0)
        status, answer = await call(gateway, route, stream, trajectory)
        assert (status, 'error":{' in answer) == (200, False)
        (step,) = gateway.steps(trajectory)
        assert (step.excluded_reason or "none").split(":")[0] == (reason or "none")
        # It is no fault that another engine could mend: the reply was given.
        assert gateway.calls() == [1, 0]
        assert len(gateway.pool.list_exchanges(trajectory)) == 1
