"""Which tokens of a reply are reasoning, tool calls and answer, found in its ids, so that losses can leave some out.

Chat formats that mark both with single tokens are known here: those of the Qwen3 kind, `<think>` and `<tool_call>`.
A mark belongs to what it encloses, the white space between two parts and the end of the turn to the part before them.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from agentworld.curation.exports.sequences import Chosen, Ids, Mask, sampled
from agentworld.engines.tokenizer import TokenizerAdapter
from agentworld.errors import ConfigError, InvalidRequestError
from agentworld.pool.arrays import StepArrays
from agentworld.records import Step

REASONING, CALLS, ANSWER = 0, 1, 2
_NUMBERS = {"reasoning": REASONING, "tool_calls": CALLS, "answer": ANSWER}
_MARKS = ("<think>", "</think>", "<tool_call>", "</tool_call>")


class Components:
    """Splits replies of one vocabulary. ConfigError where its chat format is not known."""

    def __init__(self, tokenizer: TokenizerAdapter) -> None:
        found = [tokenizer.convert_tokens_to_ids(mark) for mark in _MARKS]
        if any(each is None for each in found) or tokenizer.convert_tokens_to_ids("<|im_start|>") is None:
            raise ConfigError(
                "this tokenizer has no single tokens for <think> and <tool_call>, so that reasoning, tool calls and "
                "answers cannot be told apart in its ids",
                path="tokenizer",
                hint="Export without train, which trains on all that was sampled",
            )
        self._think, self._think_end, self._call, self._call_end = found
        self._turn = tokenizer.convert_tokens_to_ids("<|im_start|>")
        self._stops = {
            each for each in map(tokenizer.convert_tokens_to_ids, ("<|im_end|>", "<|endoftext|>")) if each is not None
        }
        self._tokenizer = tokenizer
        self._digest = tokenizer.digest.hex()

    def parts(self, prompt: Ids, reply: Ids) -> npt.NDArray[np.int8]:
        """The component of each token of a reply [R]: 0 reasoning, 1 tool calls, 2 answer."""
        out = np.empty(len(reply), dtype=np.int8)
        current = REASONING if self._opened(prompt) else ANSWER
        closed: int | None = None  # The part before, as long as nothing but space has come after it.
        begun = current == REASONING
        for place, token in enumerate(reply.tolist()):
            space = token in self._stops or self._is_space(token)
            if token == self._think and not begun:
                current, closed = REASONING, None
            elif token == self._call and current != CALLS:
                current, closed = CALLS, None  # Also within reasoning that was not closed.
            elif not space:
                closed = None
            begun = begun or not space
            out[place] = current if closed is None else closed
            if token == (self._think_end if current == REASONING else self._call_end) and current != ANSWER:
                closed, current = current, ANSWER
        return out

    def chosen(self, train: tuple[str, ...]) -> Chosen:
        """Choose the sampled tokens of these components."""
        wanted = np.asarray([_NUMBERS[name] for name in train], dtype=np.int8)

        def choose(step: Step, arrays: StepArrays) -> Mask:
            self._check_vocabulary(step)
            prompt, reply = arrays.ids[: arrays.prompt_length], arrays.ids[arrays.prompt_length :]
            return sampled(step, arrays) & np.isin(self.parts(prompt, reply), wanted)

        return choose

    def _check_vocabulary(self, step: Step) -> None:
        own = (step.vocabulary or "").partition("+")[0]
        if own and own != self._digest:
            raise InvalidRequestError(
                f"the ids of step {step.step_id} are of another vocabulary than the tokenizer's",
                path="tokenizer",
                hint=f"Give the tokenizer with the digest {own}, or export steps of one vocabulary at a time",
            )

    def _opened(self, prompt: Ids) -> bool:
        """Whether the prompt ends within reasoning, which templates may open."""
        for token in reversed(prompt[-64:].tolist()):
            if token in (self._think_end, self._turn):
                return False
            if token == self._think:
                return True
        return False

    def _is_space(self, token: int) -> bool:
        text = self._tokenizer.token_bytes(token)
        return bool(text) and not text.strip()
