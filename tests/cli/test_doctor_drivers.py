"""What `agentworld doctor` says of an engine of each kind."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from agentworld.cli.engine_checks import able, check_address
from agentworld.config import ModelSettings
from agentworld.engines.base import open_engine
from tests.engines.fakes import FakeEngine, Faults
from tests.engines.fakes.anthropic import AnthropicFake
from tests.engines.fakes.llamacpp import LlamaCppFake
from tests.engines.fakes.openai import OpenAIFake
from tests.engines.fakes.sglang import SglangFake

FAKES: dict[str, Callable[[], FakeEngine]] = {
    "vllm": lambda: OpenAIFake(ids=True),
    "sglang": SglangFake,
    "llamacpp": LlamaCppFake,
    "openai": OpenAIFake,
    "anthropic": AnthropicFake,
}
TOKENS = {
    "vllm": "engine: there is no tokenizer, and the engine is expected to give ids; "
    "ids and log-probabilities come back",
    "openai": "text only: the driver openai gives text only",
    "anthropic": "text only: the driver anthropic gives text only",
}
PLAIN = "with plain replies only: streamed calls are asked plain, then streamed"


@pytest.mark.parametrize("driver", list(FAKES))
async def test_where_ids_come_from_is_said(driver: str) -> None:
    async with FAKES[driver]() as fake:
        model = ModelSettings(name="model", upstream=fake.url, driver=driver)  # type: ignore[arg-type]
        findings = {finding.subject: finding for finding in await check_address(model)}
    assert {finding.state for finding in findings.values()} <= {"ok", "info"}
    assert findings["tool calls"].state == "ok"
    if driver in TOKENS:
        assert findings["tokens"].result == TOKENS[driver]
    else:
        assert PLAIN in findings["tokens"].result
    assert findings["model model"].result.startswith(f"{driver} at {fake.url}: ")


async def test_an_engine_that_leaves_ids_out_is_to_be_mended() -> None:
    async with SglangFake(faults=Faults(without_ids=True)) as fake:
        findings = await check_address(ModelSettings(name="model", upstream=fake.url, driver="sglang"))
    (found,) = (finding for finding in findings if finding.subject == "tokens")
    assert (found.state, "return_meta_info" in found.fix) == ("bad", True)


@pytest.mark.parametrize(
    ("driver", "said"),
    [
        ("vllm", "ids in plain and streamed replies, prompts of ids, images, demanded tool calls, JSON schemas"),
        ("builtin", "ids in plain and streamed replies, prompts of ids"),
        ("llamacpp", "ids in plain replies only, prompts of ids, images, demanded tool calls, JSON schemas"),
        ("anthropic", "text without ids, images, demanded tool calls, JSON schemas"),
    ],
)
def test_what_each_kind_can_do(driver: str, said: str) -> None:
    model = ModelSettings(name="model", upstream="http://127.0.0.1:9", driver=driver)  # type: ignore[arg-type]
    assert able(open_engine(model, 1.0).capabilities) == said
