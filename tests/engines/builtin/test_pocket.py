"""Pocket's vocabulary works with the Qwen3 renderer; its weights come back as they were saved."""

import json

import pytest
import torch
from renderers.configs import Qwen3RendererConfig
from renderers.qwen3 import _TOOLS_FOOTER, _TOOLS_HEADER, Qwen3Renderer
from tokenizers import Tokenizer

from agentworld.engines.builtin import pocket_tokenizer
from agentworld.engines.builtin.pocket import CONTEXT, POCKET_TOKENIZER_PATH, load_pocket, save_pocket
from agentworld.engines.builtin.pocket_tokenizer import CALCULATOR_TOOL, CONVERTER_TOOL
from agentworld.errors import ConfigError, NotFoundError
from agentworld.tasks import ready_task_set

EXPRESSION = "26 + 81"
CALL = '<tool_call>\n{"name": "calculator", "arguments": {"expression": "26 + 81"}}\n</tool_call>'


@pytest.fixture(scope="module")
def pocket():
    return load_pocket()


@pytest.fixture(scope="module")
def renderer(pocket):
    return Qwen3Renderer(pocket[1], Qwen3RendererConfig(thinking_retention="all"))


def encode(tokenizer, text):
    return tokenizer.encode(text, add_special_tokens=False)


def test_the_shipped_vocabulary_is_what_the_command_makes():
    made = json.loads(pocket_tokenizer.train_tokenizer().to_str())
    assert made == json.loads(POCKET_TOKENIZER_PATH.read_text(encoding="utf-8"))


def test_it_has_one_to_three_million_parameters_and_ties_its_embeddings(pocket):
    model, tokenizer = pocket
    assert 1_000_000 <= sum(parameter.numel() for parameter in model.parameters()) <= 3_000_000
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight
    assert model.config.vocab_size == len(tokenizer) == pocket_tokenizer.VOCABULARY_SIZE
    assert model.config.max_position_embeddings == CONTEXT


def test_the_preamble_is_the_renderers(pocket):
    # If the renderer changed its wording, prompts would cost hundreds of tokens without anything else failing.
    assert pocket_tokenizer.TOOLS_HEADER == _TOOLS_HEADER + "\n"
    before, middle, after = pocket_tokenizer.TOOLS_FOOTER
    assert f"{before}<tool_call></tool_call>{middle}<tool_call>{after}</tool_call>" == _TOOLS_FOOTER


@pytest.mark.parametrize("phrase", pocket_tokenizer.PHRASES)
def test_fixed_phrases_are_one_token(pocket, phrase):
    assert len(encode(pocket[1], phrase)) == 1


def test_digits_and_capitals_stand_alone(pocket):
    assert len(encode(pocket[1], "0123456789")) == 10
    assert len(encode(pocket[1], "ABCXYZ")) == 6


def test_phrases_are_no_control_tokens(pocket):
    # The gateway cuts control tokens in what callers say; phrases must come through whole.
    added = {token.content for token in pocket[1].added_tokens_decoder.values()}
    assert added == {*pocket_tokenizer.CONTROL_TOKENS, *pocket_tokenizer.MARKUP_TOKENS}


@pytest.mark.parametrize(
    "text", ["", " ", "Zoë naïve 日本語 🙂", "a\n\n\tb  c", 'x {"a": [1, -2.5]} <|im_start|> </think>']
)
def test_any_text_comes_back(pocket, text):
    assert pocket[1].decode(encode(pocket[1], text)) == text
    plain = Tokenizer.from_file(str(POCKET_TOKENIZER_PATH))
    assert plain.encode(text, add_special_tokens=False).ids == encode(pocket[1], text)


@pytest.mark.parametrize("name", ["arithmetic", "conversion"])
def test_prompts_of_the_ready_tasks_are_short(pocket, renderer, name):
    task_set = ready_task_set(name)
    for task in task_set.tasks(20):
        messages = [{"role": "user", "content": task.messages[0].text}]
        ids = renderer.render_ids(messages, tools=task_set.environment(task).tools, add_generation_prompt=True)
        assert len(ids) < 60


@pytest.mark.parametrize("tool", [CALCULATOR_TOOL, CONVERTER_TOOL])
def test_a_rendered_tool_prompt_says_what_it_should(pocket, renderer, tool):
    ids = renderer.render_ids([{"role": "user", "content": "hi"}], tools=[tool], add_generation_prompt=True)
    expected = (
        f"<|im_start|>system\n{_TOOLS_HEADER}\n{json.dumps(tool)}{_TOOLS_FOOTER}<|im_end|>\n"
        "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    )
    assert pocket[1].decode(ids) == expected


def test_a_call_is_parsed_and_the_next_prompt_extends_it(pocket, renderer):
    messages = [{"role": "user", "content": "26 + 81 - 93"}]
    tools = [CALCULATOR_TOOL]
    prompt = renderer.render_ids(messages, tools=tools, add_generation_prompt=True)
    reply = encode(pocket[1], CALL + "<|im_end|>")
    (call,) = renderer.parse_response(reply).tool_calls
    assert (call.name, call.arguments) == ("calculator", {"expression": EXPRESSION})

    new = [{"role": "tool", "content": "107"}]
    bridged = renderer.bridge_to_next_turn(prompt, reply, new, tools=tools).token_ids
    assert bridged[: len(prompt) + len(reply)] == prompt + reply
    said = {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"type": "function", "id": "1", "function": {"name": call.name, "arguments": call.arguments}}],
    }
    whole = renderer.render_ids([*messages, said, *new], tools=tools, add_generation_prompt=True)
    assert bridged == whole


def test_weights_come_from_the_seed_and_leave_the_random_state_alone():
    state = torch.get_rng_state()
    first, again, other = (load_pocket(seed=seed)[0].model.embed_tokens.weight for seed in (3, 3, 4))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(torch.get_rng_state(), state)


def test_saved_weights_come_back(pocket, tmp_path):
    path = tmp_path / "deep" / "model.safetensors"
    save_pocket(pocket[0], path)
    for source in (path, path.parent):
        loaded, _ = load_pocket(source, seed=9)
        assert all(torch.equal(a, b) for a, b in zip(loaded.parameters(), pocket[0].parameters(), strict=True))
    assert [file.name for file in path.parent.iterdir()] == ["model.safetensors"]


def test_weights_that_are_not_pockets_are_refused(tmp_path):
    with pytest.raises(NotFoundError, match="no weights"):
        load_pocket(tmp_path / "none.safetensors")
    (tmp_path / "text.safetensors").write_text("no weights at all")
    with pytest.raises(ConfigError, match="does not hold"):
        load_pocket(tmp_path / "text.safetensors")
    from safetensors.torch import save_file

    save_file({"other": torch.zeros(2)}, str(tmp_path / "other.safetensors"))
    with pytest.raises(ConfigError, match="does not hold"):
        load_pocket(tmp_path / "other.safetensors")
