"""The generation loop: one thread, one batch, which requests join and leave between any two tokens.

Each turn of the loop admits what waits, computes one chunk of unfinished prompts, then one token for every
sequence that has its prompt. Sequences with a finished prompt lie in the first rows of the cache, the others behind.

A sequence starts from the longest beginning that a running or finished sequence has in common with it. One that
shares its beginning with a prompt still being computed waits for it, so that a group computes its prompt once.
What was computed with older weights is continued by its own sequence, and never given to another.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch

from agentworld.engines.builtin.cache import LEAST_SHARED, PrefixStore, RowCache, common_prefix, head
from agentworld.engines.builtin.sampler import RowSampler, draw
from agentworld.engines.detokenize import StopStrings, TextStream
from agentworld.engines.replies import Tokens, Tops
from agentworld.errors import ConfigError

PREFILL_TOKENS = 2048
"""Prompt tokens computed in one turn, over all rows."""
PREFIX_BYTES = 256 << 20


class Sequence:
    """One choice on its way: what is known of it, and how far it got."""

    def __init__(
        self,
        *,
        owner: Any,
        index: int,
        prompt: list[int],
        limit: int,
        sampler: RowSampler,
        stream: bool,
        ends: frozenset[int],
        reported_ends: frozenset[int],
        text: TextStream | None,
        stops: StopStrings | None,
    ) -> None:
        self.owner = owner
        """Where its tokens go; the loop hands it back untouched."""
        self.index = index
        self.prompt = np.asarray(prompt, dtype=np.int64)
        self.head = head(self.prompt[:-1])
        self.tokens = list(prompt)
        self.reply: list[int] = []
        self.limit = limit
        self.sampler = sampler
        self.stream = stream
        self.ends = ends
        self.reported_ends = reported_ends
        self.text = text
        self.stops = stops
        self.cached = 0
        self.reused = 0
        self.epoch = -1
        self.cancelled = False
        self.spans: list[list[int]] = []
        self.pending = Tokens(index=index, ids=[])

    @property
    def remaining(self) -> int:
        """Tokens to compute before the next one can be drawn."""
        return len(self.tokens) - self.cached


Deliver = Callable[[list[tuple[Any, Tokens | BaseException]]], None]


class Runner:
    """Owns the model and its thread. Everything but `submit`, `cancel`, `call`, `start` and `stop` runs in it."""

    def __init__(self, model: Any, *, max_batch: int, version: int, deliver: Deliver, run: str | None = None) -> None:
        self.model = model
        self.max_batch = max_batch
        self.version = version
        self.run = run
        self._deliver = deliver
        self._backbone = model.get_decoder()
        self._head = model.get_output_embeddings()
        parameters = inspect.signature(type(self._backbone).forward).parameters
        self._cache_name = "cache" if "cache" in parameters else "past_key_values"
        config = model.config
        heads = config.num_attention_heads
        self._device = next(model.parameters()).device
        self._cache = RowCache(
            config.num_hidden_layers,
            getattr(config, "num_key_value_heads", None) or heads,
            getattr(config, "head_dim", None) or config.hidden_size // heads,
            dtype=next(model.parameters()).dtype,
            device=self._device,
        )
        self._prefixes = PrefixStore(PREFIX_BYTES)
        self._rows: list[Sequence] = []
        self._ready = 0
        self._epoch = 0
        self._waiting: list[Sequence] = []
        self._inbox: list[Sequence] = []
        self._calls: list[Callable[[], None]] = []
        self._wake = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="generation", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread after the current step."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        self._thread.join()

    def submit(self, sequences: Iterable[Sequence]) -> None:
        """Hand in sequences; their tokens come through `deliver`."""
        with self._wake:
            self._inbox.extend(sequences)
            self._wake.notify()

    def cancel(self, sequences: Iterable[Sequence]) -> None:
        """Drop sequences at the next step; nothing more is delivered for them."""
        with self._wake:
            for sequence in sequences:
                sequence.cancelled = True
            self._wake.notify()

    def call(self, action: Callable[[], None]) -> None:
        """Run `action` in the thread between two steps."""
        with self._wake:
            self._calls.append(action)
            self._wake.notify()

    def weights_changed(self, version: int, run: str | None = None) -> None:
        """Call in the thread once other weights are in place. Those of another run end what is under way as `abort`:
        a call is never answered by two runs.
        """
        if run != self.run:
            self._cut()
        self.version, self.run = version, run
        self._epoch += 1
        self._prefixes.clear()

    # -- the loop ---------------------------------------------------------------------------------------

    def _run(self) -> None:
        with torch.inference_mode():
            while True:
                with self._wake:
                    while not (self._stopping or self._inbox or self._calls or self._rows or self._waiting):
                        self._wake.wait()
                    if self._stopping:
                        return
                    self._waiting.extend(self._inbox)
                    self._inbox.clear()
                    calls, self._calls = self._calls, []
                for action in calls:
                    action()
                try:
                    self._turn()
                except Exception as fault:  # a step that fails must not take the server down
                    self._fail(fault)

    def _cut(self) -> None:
        """End all calls that were taken in; one of several choices may have begun while others wait."""
        out: list[tuple[Any, Tokens | BaseException]] = []
        for sequence in (*self._rows, *self._waiting):
            if not sequence.cancelled:
                sequence.pending.finish_reason, sequence.pending.version_spans = "abort", sequence.spans
                out.append((sequence.owner, sequence.pending))
        self._rows, self._waiting, self._ready = [], [], 0
        if out:
            self._deliver(out)

    def _fail(self, fault: Exception) -> None:
        lost = [*self._rows, *self._waiting]
        self._rows, self._waiting, self._ready = [], [], 0
        self._prefixes.clear()
        self._deliver([(sequence.owner, fault) for sequence in lost if not sequence.cancelled])

    def _turn(self) -> None:
        self._drop_cancelled()
        self._admit()
        out: list[tuple[Any, Tokens | BaseException]] = []
        if self._ready < len(self._rows):
            self._prefill(out)
        if self._ready:
            self._step(0, self._ready, 1, out)
        if out:
            self._deliver(out)

    def _drop_cancelled(self) -> None:
        self._waiting = [sequence for sequence in self._waiting if not sequence.cancelled]
        for row in range(len(self._rows) - 1, -1, -1):
            if self._rows[row].cancelled:
                self._leave(row)

    def _admit(self) -> None:
        if not self._waiting or len(self._rows) >= self.max_batch:
            return
        kept: list[Sequence] = []
        for sequence in self._waiting:
            if len(self._rows) >= self.max_batch or not self._place(sequence):
                kept.append(sequence)
        self._waiting = kept

    def _place(self, sequence: Sequence) -> bool:
        """Give a sequence a row, starting from what others have computed; False if that is worth waiting for."""
        wanted = sequence.prompt[:-1]
        best, source, coming = 0, None, 0
        for row, other in enumerate(self._rows):
            if other.epoch != self._epoch or other.head != sequence.head:
                continue
            shared = common_prefix(other.prompt, wanted)
            coming = max(coming, shared)
            if min(shared, other.cached) > best:
                best, source = min(shared, other.cached), row
        stored, tensor = self._prefixes.find(wanted)
        if coming >= max(best, stored) + LEAST_SHARED:
            return False
        target = len(self._rows)
        self._cache.reserve(target + 1, len(sequence.tokens) + 1)
        if max(best, stored) >= LEAST_SHARED:
            if tensor is not None and stored >= best:
                self._cache.put(target, tensor, stored)
            elif source is not None:
                self._cache.copy(source, target, best)
            sequence.cached = sequence.reused = max(best, stored)
        sequence.epoch = self._epoch
        self._rows.append(sequence)
        if sequence.remaining == 1:
            self._swap(target, self._ready)
            self._ready += 1
        return True

    def _swap(self, one: int, other: int) -> None:
        rows = self._rows
        self._cache.swap(one, other, max(rows[one].cached, rows[other].cached))
        rows[one], rows[other] = rows[other], rows[one]

    def _leave(self, row: int) -> None:
        """Free a row; the last ready row and the last row of all close the gaps."""
        if row < self._ready:
            self._ready -= 1
            self._move(self._ready, row)
            row = self._ready
        last = len(self._rows) - 1
        self._move(last, row)
        self._rows.pop()

    def _move(self, source: int, target: int) -> None:
        if source != target:
            self._cache.copy(source, target, self._rows[source].cached)
            self._rows[target] = self._rows[source]

    def _prefill(self, out: list[tuple[Any, Tokens | BaseException]]) -> None:
        first, count = self._ready, len(self._rows) - self._ready
        longest = max(sequence.remaining for sequence in self._rows[first:])
        self._step(first, first + count, min(longest, max(PREFILL_TOKENS // count, LEAST_SHARED)), out)
        for row in range(self._ready, len(self._rows)):
            if self._rows[row].remaining == 1:
                self._swap(row, self._ready)
                self._ready += 1

    def _step(self, first: int, last: int, width: int, out: list[tuple[Any, Tokens | BaseException]]) -> None:
        """Compute up to `width` tokens of each row from `first` to `last`; draw where a row has all of its own."""
        rows = self._rows[first:last]
        counts = [min(width, sequence.remaining) for sequence in rows]
        starts = [sequence.cached for sequence in rows]
        if width == 1:
            fed = [[sequence.tokens[-1]] for sequence in rows]
        else:
            fed = [
                sequence.tokens[start : start + count] + [0] * (width - count)
                for sequence, start, count in zip(rows, starts, counts, strict=True)
            ]
        hidden = self._hidden(first, fed, starts)
        done: list[int] = []
        for row, (sequence, count) in enumerate(zip(rows, counts, strict=True)):
            sequence.cached += count
            if sequence.remaining == 0:
                done.append(row)
        if not done:
            return
        ends = torch.tensor([counts[row] - 1 for row in done], device=self._device)
        picked = hidden[torch.tensor(done, device=self._device), ends]
        logits = self._head(picked).to(torch.float32)
        drawing = [rows[row] for row in done]
        drawn = draw(
            logits,
            [sequence.sampler for sequence in drawing],
            [(sequence.tokens[: len(sequence.prompt)], sequence.reply) for sequence in drawing]
            if any(sequence.sampler.edits for sequence in drawing)
            else [],
        )
        left = []
        for position, sequence in enumerate(drawing):
            logprob = drawn.logprobs[position] if drawn.logprobs else 0.0
            if self._append(sequence, drawn.ids[position], logprob, drawn.tops[position]):
                left.append(first + done[position])
                out.append((sequence.owner, sequence.pending))
            elif sequence.stream:
                out.append((sequence.owner, sequence.pending))
                sequence.pending = Tokens(index=sequence.index, ids=[])
        for row in reversed(left):
            self._keep(row)
            self._leave(row)

    def _hidden(self, first: int, fed: list[list[int]], starts: list[int]) -> torch.Tensor:
        """Last hidden states `[rows, width, hidden]` of ids fed to the rows from `first` on."""
        width = len(fed[0])
        span = max(starts) + width
        self._cache.reserve(first + len(fed), span)
        offsets = torch.arange(width, device=self._device)
        positions = torch.tensor(starts, device=self._device)[:, None] + offsets
        window = self._cache.window(first, positions, span)
        hidden: torch.Tensor = self._backbone(
            input_ids=torch.tensor(fed, device=self._device),
            attention_mask=window.mask(),
            position_ids=positions,
            use_cache=True,
            **{self._cache_name: window},
        ).last_hidden_state
        return hidden

    def verify(self) -> None:
        """Compare this loop's cached forward with the model's own on a few ids; refuse a model where they differ.

        Models that scale or cap their logits, or keep a state other than keys and values, would differ.
        """
        ids = [(7 * position + 3) % self.model.config.vocab_size for position in range(12)]
        with torch.inference_mode():
            plain = self.model(input_ids=torch.tensor([ids], device=self._device)).logits[0].float()
            parts = [self._hidden(0, [ids[:5]], [0]), self._hidden(0, [ids[5:11]], [5])]
            parts.append(self._hidden(0, [ids[11:]], [11]))
            ours = self._head(torch.cat(parts, dim=1)[0]).float()
        tolerance = 1e-3 if self._cache.dtype == torch.float32 else 0.1
        difference = float((plain - ours).abs().max() / plain.abs().max().clamp(min=1.0))
        if difference > tolerance:
            raise ConfigError(
                f"this model's logits differ by {difference:.2g} when computed with cached keys and values",
                path="--model",
                hint="Serve it with vLLM or SGLang",
            )

    def _append(self, sequence: Sequence, token_id: int, logprob: float, tops: Tops) -> bool:
        """Take a drawn token; True when it ends the reply."""
        position = len(sequence.reply)
        sequence.tokens.append(token_id)
        sequence.reply.append(token_id)
        if not sequence.spans or sequence.spans[-1][1] != self.version:
            sequence.spans.append([position, self.version])
        tokens = sequence.pending
        tokens.ids.append(token_id)
        if tokens.version is None:
            tokens.version, tokens.run = self.version, self.run
        if sequence.sampler.tops is not None:
            tokens.logprobs.append(logprob)
            tokens.tops.append(tops)
        stops = sequence.stops
        if token_id in sequence.ends:
            tokens.finish_reason = "stop"
            tokens.ends_with_stop_token = True
            tokens.stop_reason = token_id if token_id in sequence.reported_ends else None
        elif stops is not None and sequence.text is not None and stops.feed(sequence.text.feed([token_id])):
            tokens.finish_reason, tokens.stop_reason = "stop", stops.found
        elif position + 1 >= sequence.limit:
            tokens.finish_reason = "length"
        if tokens.finish_reason is not None or len(sequence.spans) > 1:
            tokens.version_spans = sequence.spans
        return tokens.finish_reason is not None

    def _keep(self, row: int) -> None:
        """Remember what a finished sequence computed, for the turn that continues it."""
        sequence = self._rows[row]
        length = sequence.cached
        if sequence.epoch != self._epoch or not self._prefixes.accepts(length, self._cache.bytes_per_token):
            return
        self._prefixes.add(sequence.tokens[:length], self._cache.take(row, length))
