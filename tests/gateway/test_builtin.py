"""The gateway over the builtin engine: what is on record is what the model received, sampled and scored."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from agentworld.config import ModelSettings, ServeSettings  # noqa: E402
from agentworld.engines.builtin.models import open_model, quiet_transformers  # noqa: E402
from agentworld.engines.builtin.server import BuiltinEngine, EngineSettings  # noqa: E402
from agentworld.engines.http_surface import EngineApp, Server  # noqa: E402
from agentworld.gateway import create_gateway  # noqa: E402
from agentworld.pool import open_store  # noqa: E402
from agentworld.testing.app_server import AppServer  # noqa: E402
from tests.engines.builtin.models import rescore, save_model  # noqa: E402

SAMPLING = {"temperature": 0.7, "top_p": 0.9}
ROLLOUTS, TURNS = 3, 3


@pytest.fixture(scope="module")
def model_directory(tmp_path_factory: pytest.TempPathFactory) -> Any:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with quiet_transformers():
        yield save_model(tmp_path_factory.mktemp("tiny"), seed=3)
    torch.set_num_threads(threads)


@pytest.mark.parametrize("tokens", ["engine", "token-in"])
@pytest.mark.parametrize("stream", [False, True])
async def test_ids_and_log_probabilities_are_exact(
    tokens: str, stream: bool, model_directory: Any, tmp_path: Path
) -> None:
    engine = BuiltinEngine(open_model(str(model_directory)), EngineSettings(model=str(model_directory)))
    log = tmp_path / "tokens.jsonl"
    engine.start()
    server = Server(EngineApp(engine, log))
    await server.start()
    pool = open_store(f"sqlite:///{tmp_path}/pool.db")
    model = ModelSettings(
        name=engine.model, upstream=server.url, driver="builtin", tokens=tokens, tokenizer=str(model_directory)
    )
    try:
        async with (
            AppServer(create_gateway(ServeSettings(models=(model,)), pool)) as gateway,
            aiohttp.ClientSession() as http,
        ):

            async def rollout(number: int) -> None:
                messages: list[Any] = [{"role": "user", "content": f"task {number}"}]
                for turn in range(TURNS):
                    body = {"messages": messages, "max_tokens": 16, "seed": 7 * number + turn, "stream": stream}
                    url = f"{gateway.url}/t/t{number}/g/g/v1/chat/completions"
                    async with http.post(url, json={**body, **SAMPLING}) as response:
                        data = await response.read()
                        assert response.status == 200, data
                    messages.append({"role": "assistant", **said(data, stream)})
                    messages.append({"role": "user", "content": f"and {turn}"})

            await asyncio.gather(*(rollout(number) for number in range(ROLLOUTS)))
        steps = [
            step
            for number in range(ROLLOUTS)
            for step in pool.list_steps(trajectory_id=f"t{number}", include=("tokens", "logprobs")).items
        ]
    finally:
        await server.stop()
        engine.stop()
        pool.close()
    assert len(steps) == ROLLOUTS * TURNS
    logged = [json.loads(line) for line in log.read_text().splitlines()]
    assert sorted((entry["prompt_token_ids"], entry["token_ids"]) for entry in logged) == sorted(
        (step.prompt_ids, step.response_ids) for step in steps
    )
    for step in steps:
        assert step.excluded_reason is None
        assert step.usage is not None
        assert (step.usage.prompt_tokens, step.usage.completion_tokens) == (
            len(step.prompt_ids or []),
            len(step.response_ids or []),
        )
        assert step.logprob_space == "processed"
        if tokens == "token-in":
            assert step.metadata["prompt"] == ("rendered" if step.step_index == 0 else "bridged")
        scored = rescore(model_directory, step.prompt_ids, step.response_ids, **SAMPLING)
        assert step.response_logprobs == pytest.approx(scored, abs=1e-4)


def said(data: bytes, stream: bool) -> dict[str, Any]:
    """Content and reasoning of a reply, as a client would send them back."""
    if not stream:
        message = json.loads(data)["choices"][0]["message"]
        return {name: message[name] for name in ("content", "reasoning") if message.get(name) is not None}
    out: dict[str, Any] = {"content": ""}
    for line in data.splitlines():
        if line.startswith(b"data: {"):
            for choice in json.loads(line[6:])["choices"]:
                out["content"] += choice["delta"].get("content") or ""
                if choice["delta"].get("reasoning"):
                    out["reasoning"] = out.get("reasoning", "") + choice["delta"]["reasoning"]
    return out
