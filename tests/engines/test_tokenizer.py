import json

import pytest

from agentworld.engines.tokenizer import QWEN_CONTROL_TOKENS, byte_tokenizer, load_tokenizer
from agentworld.errors import ConfigError, InvalidRequestError


def test_a_byte_is_an_id_and_control_tokens_are_one_id_each():
    tokenizer = byte_tokenizer()
    assert tokenizer.encode("hé\n") == list("hé\n".encode())
    assert tokenizer.encode("a<|im_end|><tool_call>") == [97, 258, 261]
    assert [tokenizer.convert_tokens_to_ids(text) for text, _ in QWEN_CONTROL_TOKENS] == list(range(256, 265))
    assert tokenizer.vocab_size == 265
    assert tokenizer.eos_token_id == 258


def test_only_special_tokens_are_left_out_of_text():
    tokenizer = byte_tokenizer()
    ids = tokenizer.encode("<think>x</think><|im_end|>")
    assert tokenizer.decode(ids, skip_special_tokens=True) == "<think>x</think>"
    assert tokenizer.decode(ids) == "<think>x</think><|im_end|>"


def test_bytes_that_are_no_character_survive_as_bytes():
    tokenizer = byte_tokenizer()
    assert tokenizer.token_bytes(0xC3) == b"\xc3"
    assert tokenizer.decode([0xC3]) == "�"
    assert tokenizer.token_bytes(262) == b"</tool_call>"
    assert tokenizer.token_bytes(9999) == b""


def test_offsets_are_in_characters():
    encoding = byte_tokenizer()("aé", return_offsets_mapping=True)
    assert encoding["input_ids"] == [97, 0xC3, 0xA9]
    assert encoding["offset_mapping"] == [(0, 1), (1, 2), (1, 2)]


def test_the_digest_names_the_vocabulary(tmp_path):
    tokenizer = byte_tokenizer()
    tokenizer.backend.save(str(tmp_path / "tokenizer.json"))
    again = load_tokenizer(tmp_path)
    assert again.digest == tokenizer.digest
    assert len(again.digest) == 16
    again.backend.add_tokens(["one more"])
    again.backend.save(str(tmp_path / "larger.json"))
    assert load_tokenizer(tmp_path / "larger.json").digest != tokenizer.digest


def test_a_directory_brings_its_template_and_end_of_turn(tmp_path):
    byte_tokenizer().backend.save(str(tmp_path / "tokenizer.json"))
    settings = {"eos_token": {"content": "<|endoftext|>"}, "chat_template": "old"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    (tmp_path / "chat_template.jinja").write_text(
        "{% for m in messages %}\n{{ m.role }}: {{ m | tojson }}\n{% endfor %}{{ eos_token }}"
    )
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.eos_token_id == 256
    text = tokenizer.apply_chat_template([{"role": "user", "content": "é<"}], tokenize=False)
    assert text == 'user: {"role": "user", "content": "é<"}\n<|endoftext|>'


def test_a_template_that_refuses_is_the_callers_error(tmp_path):
    byte_tokenizer().backend.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "chat_template.jinja").write_text("{{ raise_exception('no system role') }}")
    with pytest.raises(InvalidRequestError, match="no system role"):
        load_tokenizer(tmp_path).apply_chat_template([])


@pytest.mark.parametrize("name", ["nowhere", "/nowhere/tokenizer.json"])
def test_a_missing_tokenizer_says_where(name):
    with pytest.raises(ConfigError, match="no tokenizer at"):
        load_tokenizer(name)


def test_a_broken_tokenizer_says_where(tmp_path):
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(ConfigError) as caught:
        load_tokenizer(tmp_path)
    assert caught.value.path == str(tmp_path / "tokenizer.json")
