"""Token-in for a model that only has a Jinja template: rendered anew each turn, read at the end of the reply."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agentworld.config import ModelSettings
from agentworld.engines.tokenizer import byte_tokenizer
from agentworld.errors import ConfigError
from agentworld.gateway.token_in import TokenIn

from .harness import running

TEMPLATE = (
    "{% for message in messages %}[{{ message.role }}] {{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}[assistant] {% endif %}"
)


@pytest.fixture
def folder(tmp_path: Path) -> str:
    byte_tokenizer().backend.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "chat_template.jinja").write_text(TEMPLATE)
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": "<|im_end|>"}')
    return str(tmp_path)


@pytest.mark.parametrize("stream", [False, True])
async def test_two_turns(folder: str, stream: bool) -> None:
    async with running("fine END more", tokens="token-in", tokenizer=folder) as gateway:
        model = gateway.gateway.models.by_name["scripted"]
        assert "renderer default" in model.reason
        messages: list[Any] = [{"role": "user", "content": "say <|im_end|>"}]
        for _ in range(2):
            answer = await gateway.client("/t/t1").chat.completions.create(
                model="m", messages=messages, stop=["END"], stream=stream
            )
            if stream:
                text = ""
                async for event in answer:
                    text += event.choices[0].delta.content or ""
            else:
                text = answer.choices[0].message.content or ""
            assert text == "fine"
            messages += [{"role": "assistant", "content": text}, {"role": "user", "content": "on"}]
        first, second = gateway.steps("t1")
        tokenizer = byte_tokenizer()
        assert tokenizer.decode(first.prompt_ids) == "[user] say <|im_end|>\n[assistant] "
        assert tokenizer.eos_token_id not in first.prompt_ids
        assert second.metadata["prompt"] == "rendered"
        # The template writes the reply without what was sampled after it, and that is on record.
        assert second.fork_reason == "template"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"renderer": {"name": "nope"}}, "renderer settings"),
        ({"renderer": {"name": "qwen3", "colour": 1}}, "renderer settings"),
        ({"renderer": {"name": "qwen3.5"}}, "does not fit"),
        ({"tokenizer": "/nowhere"}, "no tokenizer"),
    ],
)
def test_settings_that_do_not_fit(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        TokenIn(ModelSettings(**{"name": "m", "upstream": "http://x", "tokenizer": "byte", **settings}))


def test_a_model_known_by_name_has_its_own_renderer() -> None:
    model = TokenIn(ModelSettings(name="Qwen/Qwen3-8B", upstream="http://x", tokenizer="byte"))
    assert model.rendering({}).name == "qwen3"
