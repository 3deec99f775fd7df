"""A cut reply whose engine dies goes on at another one, from what there is of it."""

from __future__ import annotations

import openai
import pytest

from agentworld.gateway.attempts import FIRST_WAIT
from agentworld.records import VersionSpan
from agentworld.testing import ScriptedEngine, ScriptedReply, ScriptedRequest
from agentworld.testing.wire_faults import WireFaults

from .fleet import Fleet, Idle, fleet
from .test_updates import cut, streamed


async def said(gateway: Fleet, path: str, stream: bool) -> str:
    if stream:
        return (await streamed(gateway, path))[0]
    status, body, _ = await gateway.say("hello", path)
    assert status == 200
    text: str = body["choices"][0]["message"]["content"]
    return text


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("fault", ["busy", "broken", "broken midway"])
async def test_it_goes_on_at_an_engine_that_is_well(fault: str, stream: bool) -> None:
    async with fleet("?", "and here", tokens="token-in") as gateway:
        first, second = gateway.engines
        first.set_policy(3)
        second.set_policy(4)

        def script(request: ScriptedRequest) -> ScriptedReply:
            if request.call == 0:
                return cut("from there ")
            if fault == "busy":
                return ScriptedReply(status=429, error_body="{}")
            return ScriptedReply(text="XY", faults=WireFaults(drop_after=0 if fault == "broken" else 1))

        first.script = script
        path = f"/t/{gateway.home(0)}"
        text = await said(gateway, path, stream)
        midway = "X" if fault == "broken midway" and stream else ""  # A plain reply comes whole or not at all.
        assert text == f"from there {midway}and here"
        (step,) = gateway.steps(gateway.home(0))
        sampled = [call.sampled_ids[0] for call in (*first.requests, *second.requests)]
        assert step.excluded_reason is None
        assert step.finish_reason == "stop"
        (going_on,) = second.requests
        assert step.response_ids is not None
        assert going_on.prompt_ids[0] == [*(step.prompt_ids or []), *step.response_ids[: -len(sampled[-1])]]
        assert step.version_spans == (VersionSpan(0, 3), VersionSpan(len(step.response_ids) - len(sampled[-1]), 4))
        assert step.metadata["engine"] == gateway.upstreams[1].address
        assert [address for address, _ in step.metadata["failed_tries"]] == [gateway.upstreams[0].address]
        assert (gateway.figures()[0].failovers, gateway.figures()[0].in_flight) == (1, 0)
        assert gateway.figures()[1].in_flight == 0


class Fatal(Idle):
    """The engine that cut a reply ends while the call waits for it."""

    engine: ScriptedEngine | None = None

    async def sleep(self, seconds: float) -> None:
        engine, self.engine = self.engine, None
        if engine is not None:
            await engine.__aexit__()
        await super().sleep(seconds)


@pytest.mark.parametrize("stream", [False, True])
async def test_it_waits_for_no_engine_that_has_ended(stream: bool) -> None:
    clock = Fatal()
    async with fleet("?", "and here", tokens="token-in", clock=clock) as gateway:

        def script(request: ScriptedRequest) -> ScriptedReply:
            clock.engine = gateway.engine
            return cut("from there ")

        gateway.engine.script = script
        assert await said(gateway, f"/t/{gateway.home(0)}", stream) == "from there and here"
        assert [seconds for seconds in clock.slept if seconds > 0] == [FIRST_WAIT]
        assert gateway.calls() == [1, 1]
        assert [each.healthy for each in gateway.figures()] == [False, True]


async def test_where_there_is_no_other_engine_the_same_one_is_asked_again() -> None:
    async with fleet("?", tokens="token-in") as gateway:
        faults = WireFaults(drop_after=0)
        replies = [cut("one "), ScriptedReply(text="?", faults=faults), ScriptedReply(text="two")]
        gateway.engine.script = lambda request: replies[request.call]
        assert (await streamed(gateway))[0] == "one two"
        (step,) = gateway.steps("t1")
        assert step.excluded_reason is None
        assert gateway.figures()[0].healthy


async def test_a_first_piece_that_breaks_off_stays_so() -> None:
    """Who began a reply and did not cut it may have meant anything by what it said."""
    faults = WireFaults(drop_after=2)
    async with fleet(ScriptedReply(text="abcd", faults=faults), "never", tokens="token-in") as gateway:
        with pytest.raises(openai.APIError):
            await streamed(gateway, f"/t/{gateway.home(0)}")
        assert gateway.calls() == [1, 0]
