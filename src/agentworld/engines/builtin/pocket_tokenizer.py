"""Pocket's vocabulary: a small byte-level BPE with the Qwen control tokens, made from our own texts.

`pocket_tokenizer.json` beside this file is written by `python -m agentworld.engines.builtin.pocket_tokenizer`
and is read with plain `tokenizers`, so whoever only renders needs no torch.

What makes prompts short and spelling possible:

- The fixed lines of the tool preamble that Qwen3 renderers write, our tool schemas, the opening of a call
  and the fixed part of each ready task are whole tokens (`PHRASES`). They are ordinary entries of
  the vocabulary: any text that holds them decodes to the same characters.
- Digits and capitals are always single tokens, so numbers and capitalised words are sequences of symbols that
  a very small model can copy, count and turn around.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

POCKET_TOKENIZER_PATH = Path(__file__).with_name("pocket_tokenizer.json")

VOCABULARY_SIZE = 640
CONTROL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
# Qwen3 keeps these as ordinary added tokens: decoding with `skip_special_tokens` does not drop them.
MARKUP_TOKENS = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")

TOOLS_HEADER = (
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>\n"
)
# What stands between the control tokens of the preamble's last part.
TOOLS_FOOTER = (
    "\n</tools>\n\nFor each function call, return a json object with function name and arguments within ",
    " XML tags:\n",
    '\n{"name": <function-name>, "arguments": <args-json-object>}\n',
)
CALCULATOR_TOOL = {
    "type": "function",
    "function": {
        "name": "calculator",
        "description": "Add or subtract two whole numbers, such as 12 + 30.",
        "parameters": {
            "type": "object",
            "properties": {"expression": {"type": "string"}},
            "required": ["expression"],
        },
    },
}
CONVERTER_TOOL = {
    "type": "function",
    "function": {
        "name": "convert",
        "description": "Write a number of one base in another base.",
        "parameters": {
            "type": "object",
            "properties": {
                "number": {"type": "string"},
                "source": {"type": "integer"},
                "target": {"type": "integer"},
            },
            "required": ["number", "source", "target"],
        },
    },
}
CALCULATOR_CALL = '{"name": "calculator", "arguments": {"expression": "'
CONVERTER_CALL = ('{"name": "convert", "arguments": {"number": "', '", "source": ', ', "target": ')
ARITHMETIC_QUESTION = "State the final answer to the following arithmetic problem:"
CONVERSION_QUESTION = (
    "Your task is to convert a number between two different bases.\n\n"
    "If the target base is > 10, use lowercase letters a-z for digits above 9.\n\nNow, convert the base-"
)
ANSWER = "Answer:"
PHRASES = (
    TOOLS_HEADER,
    *TOOLS_FOOTER,
    json.dumps(CALCULATOR_TOOL),
    json.dumps(CONVERTER_TOOL),
    CALCULATOR_CALL,
    *CONVERTER_CALL,
    ARITHMETIC_QUESTION,
    CONVERSION_QUESTION,
    ANSWER,
)

_WORDS = r"\n|[0-9]|[A-Z]| ?[a-z]+| ?[^\sA-Za-z0-9]+|\s"
_BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
_TEXTS = (
    # Role names stand in every turn; said often, they become one token each.
    "\n".join(["system", "user", "assistant", "tool"] * 40),
    "function name arguments type object string number integer boolean array properties",
    "You are a helpful assistant. Answer the question. Use the tool when it helps, then give the final",
    "answer. What is the sum of these numbers? The result is the total of both values. Please think step",
    "by step. How many letters are in this word? Sort these words and numbers in order, from the first to",
    "the last one. error: expected two whole numbers with one operator between them. No such tool. The",
    "tool can not do this. An agent calls a tool, reads what it returns and goes on until the task is",
    "done or its turns are used up. the of and to in is that it for on with as was be by are this have",
    "from or had not but what all were when we there can an your which their said if do will each about",
    "how up out them then she many some so these would other into has more her two like him see time",
    "could no make than been its who now my made over did down only true false null required description",
    "parameters expression query content message return value key index list",
)


def train_tokenizer() -> Tokenizer:
    """Build the vocabulary from the texts above. The same inputs give the same file, byte for byte.

    Merges come from training. The phrases are further entries of the BPE's vocabulary, cut out whole before it runs
    and taken as they are (`ignore_merges`): they are text like any other, no control tokens.
    """
    learned = Tokenizer(models.BPE())
    learned.pre_tokenizer = _pre_tokenizer(_WORDS)
    added = len(CONTROL_TOKENS) + len(MARKUP_TOKENS)
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY_SIZE - added - len(PHRASES),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        min_frequency=1,
        show_progress=False,
    )
    learned.train_from_iterator([*PHRASES, *_TEXTS, *_TEXTS], trainer=trainer)
    model = json.loads(learned.to_str())["model"]
    vocabulary: dict[str, int] = model["vocab"]
    for phrase in PHRASES:
        vocabulary[_BYTES.pre_tokenize_str(phrase)[0][0]] = len(vocabulary)
    merges = [(left, right) for left, right in model["merges"]]
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, ignore_merges=True))
    longest_first = sorted(PHRASES, key=len, reverse=True)
    tokenizer.pre_tokenizer = _pre_tokenizer("|".join([*map(_literal, longest_first), _WORDS]))
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in CONTROL_TOKENS])
    tokenizer.add_tokens([AddedToken(name, normalized=False) for name in MARKUP_TOKENS])
    return tokenizer


def _pre_tokenizer(pattern: str) -> pre_tokenizers.PreTokenizer:
    """Cut at the matches of `pattern`, then write bytes as characters."""
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), behavior="isolated"), _BYTES])


def _literal(text: str) -> str:
    """A pattern that matches `text` alone."""
    return re.escape(text).replace("\\\n", r"\n")


def main() -> None:
    """Write `pocket_tokenizer.json` anew."""
    tokenizer = train_tokenizer()
    tokenizer.save(str(POCKET_TOKENIZER_PATH))
    print(f"{POCKET_TOKENIZER_PATH}: {tokenizer.get_vocab_size()} tokens")


if __name__ == "__main__":
    main()
