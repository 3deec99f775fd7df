"""Engines that render prompts themselves are told where a reply goes on from the last message."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentworld.config import ModelSettings
from agentworld.dialects.exchange import Request
from agentworld.engines.base import open_engine
from agentworld.records import Message

BEGUN = (Message(role="user", content="go"), Message(role="assistant", content="The"))


@pytest.mark.parametrize(
    ("driver", "told"),
    [
        ("vllm", {"add_generation_prompt": False, "continue_final_message": True}),
        ("sglang", {"continue_final_message": True}),
        ("anthropic", {}),
    ],
)
async def test_the_body_says_so(driver: Any, told: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    engine = open_engine(ModelSettings(name="m", upstream="http://127.0.0.1:1", driver=driver), 5)
    sent: list[dict[str, Any]] = []
    monkeypatch.setattr(engine.connection, "posted", lambda path, body, *_, **__: sent.append(json.loads(body)))
    for goes_on in (True, False):
        engine.chat(Request(dialect="chat", model="m", messages=BEGUN, continue_final=goes_on))
    await engine.close()
    names = ("add_generation_prompt", "continue_final_message")
    first, second = ({name: body[name] for name in names if name in body} for body in sent)
    assert (first, second) == (told, {})
    assert sent[0]["messages"][-1]["role"] == "assistant"
    assert engine.capabilities.continues


@pytest.mark.parametrize("driver", ["openai", "llamacpp", "builtin"])
async def test_others_say_that_they_cannot(driver: Any) -> None:
    engine = open_engine(ModelSettings(name="m", upstream="http://127.0.0.1:1", driver=driver), 5)
    assert not engine.capabilities.continues
    await engine.close()
