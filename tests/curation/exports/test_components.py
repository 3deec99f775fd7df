"""Losses by component: which sampled tokens are reasoning, tool calls and answer, on ids and not on text."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from agentworld.curation.exports import export_dataset
from agentworld.curation.exports.components import Components
from agentworld.engines.tokenizer import TokenizerAdapter, byte_tokenizer
from agentworld.errors import ConfigError, InvalidRequestError
from tests.curation.exports.talks import frozen, put, says, step, user

TOKENIZER = byte_tokenizer()
MARK = {name: TOKENIZER.convert_tokens_to_ids(name) for name in ("<think>", "</think>", "<tool_call>", "</tool_call>")}
END = TOKENIZER.convert_tokens_to_ids("<|im_end|>")
OPENED = "<|im_start|>assistant\n<think>\n"
PLAIN = "<|im_start|>assistant\n"


def split(reply, prompt=PLAIN):
    """The texts of runs of one component: r reasoning, c calls, a answer."""
    ids = TOKENIZER.encode(reply)
    parts = Components(TOKENIZER).parts(np.asarray(TOKENIZER.encode(prompt)), np.asarray(ids))
    found = []
    for token, part in zip(ids, parts.tolist(), strict=True):
        if not found or found[-1][0] != "rca"[part]:
            found.append(("rca"[part], []))
        found[-1][1].append(token)
    return [(part, TOKENIZER.decode(tokens)) for part, tokens in found]


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("Hello.<|im_end|>", [("a", "Hello.<|im_end|>")]),
        ("<think>\nHm.\n</think>\n\nYes.<|im_end|>", [("r", "<think>\nHm.\n</think>\n\n"), ("a", "Yes.<|im_end|>")]),
        (
            "<think>\nHm.\n</think>\n\n<tool_call>\n{}\n</tool_call>\n<tool_call>\n[]\n</tool_call><|im_end|>",
            [
                ("r", "<think>\nHm.\n</think>\n\n"),
                ("c", "<tool_call>\n{}\n</tool_call>\n<tool_call>\n[]\n</tool_call><|im_end|>"),
            ],
        ),
        (
            "I look.\n<tool_call>\n{}\n</tool_call><|im_end|>",
            [("a", "I look.\n"), ("c", "<tool_call>\n{}\n</tool_call><|im_end|>")],
        ),
        ("<think>cut off", [("r", "<think>cut off")]),
        ("<think>a<tool_call>{}</tool_call>", [("r", "<think>a"), ("c", "<tool_call>{}</tool_call>")]),
        ("The mark <think> is said", [("a", "The mark <think> is said")]),
        ("</think> alone", [("a", "</think> alone")]),
        ("<think></think>\n\n<|im_end|>", [("r", "<think></think>\n\n<|im_end|>")]),
    ],
)
def test_where_the_parts_of_a_reply_begin_and_end(reply, expected):
    assert split(reply) == expected


def test_a_prompt_that_opens_reasoning_puts_the_reply_into_it():
    assert split("Hm.\n</think>\n\nYes.", OPENED) == [("r", "Hm.\n</think>\n\n"), ("a", "Yes.")]
    assert split("Yes.", OPENED + "</think>\n\n") == [("a", "Yes.")]


@given(st.lists(st.sampled_from([*MARK.values(), END, *b"a \n"]), max_size=24), st.sampled_from([PLAIN, OPENED]))
def test_every_token_has_one_part_and_calls_are_what_marks_enclose(ids, prompt):
    parts = Components(TOKENIZER).parts(np.asarray(TOKENIZER.encode(prompt)), np.asarray(ids, dtype=np.int64))
    assert len(parts) == len(ids)
    assert set(parts.tolist()) <= {0, 1, 2}
    for token, part in zip(ids, parts.tolist(), strict=True):
        assert token != MARK["<tool_call>"] or part == 1


def test_only_the_chosen_components_that_were_sampled_are_trained_on(memory, tmp_path):
    prompt = TOKENIZER.encode("<|im_start|>user\nHi<|im_end|>\n" + PLAIN)
    reply = TOKENIZER.encode("<think>\nHm.\n</think>\n\nYes.<|im_end|>")
    mask = [0] + [1] * (len(reply) - 1)
    ids = {"prompt_ids": prompt, "response_ids": reply, "response_mask": mask, "token_source": "engine"}
    one = step("t1", 0, [user("Hi")], says("Yes."), **ids, vocabulary=TOKENIZER.digest.hex())
    put(memory, "t1", [one])
    version = frozen(memory).name
    trained = {}
    for number, train in enumerate([("reasoning",), ("answer",), ("reasoning", "answer"), ("reasoning", "tool_calls")]):
        folder = tmp_path / str(number)
        report = export_dataset(
            memory, version, "sft-tokens", folder, file_format="jsonl", train=train, tokenizer="byte"
        )
        row = json.loads((folder / report.splits["train"].files[0]).read_text())
        trained[train] = TOKENIZER.decode([label for label in row["labels"] if label != -100])
        assert row["input_ids"] == prompt + reply
    assert trained == {
        ("reasoning",): "\nHm.\n</think>\n\n",  # Not the mark, which was injected.
        ("answer",): "Yes.<|im_end|>",
        ("reasoning", "answer"): "\nHm.\n</think>\n\nYes.<|im_end|>",
        ("reasoning", "tool_calls"): "\nHm.\n</think>\n\n",
    }
    with pytest.raises(InvalidRequestError, match="nothing_to_train"):
        export_dataset(memory, version, "sft-tokens", tmp_path / "x", train=("tool_calls",), tokenizer="byte")
    with pytest.raises(InvalidRequestError, match="another vocabulary"):
        export_dataset(memory, version, "sft-tokens", tmp_path / "x", train=("answer",), tokenizer="pocket")


def test_formats_that_are_not_known_are_refused():
    plain = TokenizerAdapter(Tokenizer(WordLevel({"a": 0}, unk_token="a")))
    with pytest.raises(ConfigError, match="cannot be told apart"):
        Components(plain)
