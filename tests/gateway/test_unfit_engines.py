"""Engines that answer but are not the ones that are meant: another vocabulary, another model."""

from __future__ import annotations

from typing import Any

import pytest
import structlog

from agentworld.engines.tokenizer import byte_tokenizer, load_tokenizer
from agentworld.gateway.models import Models
from agentworld.testing import ScriptedEngine, ScriptedReply, ScriptedRequest

from .fleet import fleet
from .harness import Harness, running, until

POCKET = {"tokenizer": load_tokenizer("pocket")}


async def readyz(gateway: Harness) -> tuple[int, dict[str, Any]]:
    async with gateway.http.get(gateway.url + "/readyz") as response:
        body = await response.json()
        return response.status, body["models"][0]


async def never(models: Models) -> None:
    """In place of the probes: calls may come before the first of them."""


def refusing(request: ScriptedRequest) -> ScriptedReply:
    return ScriptedReply(status=400, error_body={"error": {"message": "a token id is outside the vocabulary of 640"}})


@pytest.mark.parametrize("looked", [True, False])
async def test_a_tokenizer_of_another_model_is_no_fault_of_the_caller(
    monkeypatch: pytest.MonkeyPatch, looked: bool
) -> None:
    if not looked:
        monkeypatch.setattr(Models, "probe", never)
    async with running(refusing, tokens="token-in", engine=POCKET) as gateway:
        upstream = gateway.gateway.models.by_name["scripted"].upstreams.all[0]
        if looked:
            await until(lambda: upstream.looked)
        status, body, _ = await gateway.say("hello")
        assert (status, body["error"]["code"]) == (502, "engine_error")
        assert "the tokenizer byte is not that of the engine" in body["error"]["message"]
        assert "Set tokenizer of scripted" in body["error"]["message"]
        assert len(gateway.engine.requests) == (0 if looked else 1)
        status, model = await readyz(gateway)
        assert (status, model["ready"]) == (503, False)
        assert "is not that of the engine" in model["error"]


async def test_a_request_that_the_right_engine_refuses_stays_the_callers_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Models, "probe", never)
    async with running(refusing, tokens="token-in") as gateway:
        status, body, _ = await gateway.say("hello")
        assert (status, body["error"]["code"]) == (400, "invalid_request")
        assert (await readyz(gateway))[0] == 200


async def test_calls_go_to_the_engine_that_fits_and_to_the_other_once_it_does() -> None:
    async with fleet("a", "b", tokens="token-in") as gateway:
        gateway.engines[0].tokenizer = load_tokenizer("pocket")
        gateway.engines[0].chat.tokenizer = load_tokenizer("pocket")
        models = gateway.gateway.models.by_name["scripted"]
        home = gateway.home(0)
        await models.upstreams.probe()
        assert (await gateway.say("hello", f"/t/{home}"))[0] == 200
        assert gateway.calls() == [0, 1]
        status, model = await readyz(gateway)
        assert (status, [each["ready"] for each in model["engines"]]) == (200, [False, True])
        gateway.engines[0].tokenizer = gateway.engines[0].chat.tokenizer = byte_tokenizer()
        await models.upstreams.probe()
        assert (await gateway.say("hello", f"/t/{home}"))[0] == 200
        assert gateway.calls() == [1, 1]


async def test_a_model_that_the_engine_does_not_serve_is_not_ready_and_in_the_log() -> None:
    with structlog.testing.capture_logs() as lines:
        async with running(name="teacher", engine={"model": "policy"}) as gateway:
            await until(lambda: any(line["event"] == "engine_unfit" for line in lines))
            status, model = await readyz(gateway)
            assert (status, model["ready"], model["error"]) == (503, False, "the engine serves policy, not teacher")
            await readyz(gateway)
    (line,) = (line for line in lines if line["event"] == "engine_unfit")
    assert (line["model"], line["error"], line["log_level"]) == (
        "teacher",
        "the engine serves policy, not teacher",
        "error",
    )


async def test_a_service_may_answer_to_names_that_it_does_not_list() -> None:
    async with (
        ScriptedEngine(model="listed") as service,
        running(name="alias", driver="openai", tokens="none", upstream=service.url) as gateway,
    ):
        status, model = await readyz(gateway)
    assert (status, model["ready"]) == (200, True)
    assert "error" not in model
    assert model["engines"][0]["warning"] == "the engine serves listed, not alias"
