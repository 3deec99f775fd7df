"""Discriminative reward models over HTTP: a conversation in, a number out.

Layouts, with what is posted and what is read (`i` counts the conversations of one call):

    messages        {"model", "inputs": [{"messages": [...]}, ...]}  ->  scores[i]: a number, or {name: number}
    vllm_classify   /classify  {"model", "messages": [...]}  ->  data[0].probs[index]
    vllm_pooling    /pooling  {"model", "messages": [...]}  ->  data[0].data: a number, numbers of which `index` counts,
                    or such for each token, of which the last counts
    vllm_score      /score  {"model", "text_1": [...], "text_2": [...]}, prompts and replies  ->  data[i].score
    tei             /predict  {"inputs": [[text], ...], "raw_scores"}  ->  [i][k].score, k = index or by its label
    sglang          /classify  {"model", "text": [...]}  ->  [i].embedding[index]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec

from agentworld.records import BatchTrajectory, Message
from agentworld.rewards.posting import Address, post
from agentworld.rewards.protocol import EvaluationError, EvaluatorKind, Name, Verdict, conversation
from agentworld.rewards.transcript import chat_messages, transcript

Layout = Literal["messages", "vllm_classify", "vllm_pooling", "vllm_score", "tei", "sglang"]
_PATHS: dict[str, str] = {
    "messages": "",
    "vllm_classify": "/classify",
    "vllm_pooling": "/pooling",
    "vllm_score": "/score",
    "tei": "/predict",
    "sglang": "/classify",
}
_ALONE = ("vllm_classify", "vllm_pooling")
"""Layouts that take one conversation a call."""


class HttpModel(EvaluatorKind, frozen=True, kw_only=True):
    """Asks a reward model about the conversation of the trajectory's last reply.

    `url`: of the server, for `messages` of the route itself. `api_key_env`: the environment variable with its key.
    `index`: which of several numbers, `label`: or which label (tei). `values`: the names that the layout `messages`
    gives where it gives several. `seconds`, `retries`, `batch`, `max_bytes`: bounds of a call, further tries, how many
    conversations a call, and how long an answer may be.
    """

    url: str
    layout: Layout = "messages"
    model: str | None = None
    api_key_env: str | None = None
    index: Annotated[int, msgspec.Meta(ge=0)] = 0
    label: str | None = None
    raw_scores: bool = True
    values: tuple[Name, ...] = ()
    seconds: Annotated[float, msgspec.Meta(gt=0)] = 60.0
    retries: Annotated[int, msgspec.Meta(ge=0, le=10)] = 3
    batch: Annotated[int, msgspec.Meta(ge=1, le=1024)] = 16
    max_bytes: Annotated[int, msgspec.Meta(ge=1)] = 8 << 20

    def __post_init__(self) -> None:
        self._address()

    @property
    def gives(self) -> tuple[str, ...]:
        """The names that are set, or the one."""
        return self.values or (self.reward,)

    def evaluate(self, subject: BatchTrajectory) -> Verdict:
        """The model's number."""
        return self.evaluate_many([subject])[0]

    def evaluate_many(self, subjects: Sequence[BatchTrajectory]) -> list[Verdict]:
        """The model's numbers, several conversations a call."""
        talks = [conversation(each) for each in subjects]
        most = 1 if self.layout in _ALONE else self.batch
        found: list[Verdict] = []
        for start in range(0, len(talks), most):
            found += self._ask(talks[start : start + most])
        return found

    def _address(self) -> Address:
        return Address(
            url=self.url,
            api_key_env=self.api_key_env,
            seconds=self.seconds,
            retries=self.retries,
            max_bytes=self.max_bytes,
        )

    def _ask(self, talks: list[list[Message]]) -> list[Verdict]:
        answer = post(self._address(), _PATHS[self.layout], self._body(talks))
        try:
            numbers = self._read(answer, len(talks))
        except (KeyError, IndexError, TypeError, StopIteration) as error:
            said = msgspec.json.encode(answer)[:200].decode("utf-8", "replace")
            raise EvaluationError(
                f"{self.name}: the answer is not of the layout {self.layout} ({type(error).__name__} {error}): {said}",
                path="layout",
                hint="Set the layout, `index` or `label` that the server has",
            ) from None
        if len(numbers) != len(talks):
            raise EvaluationError(f"{self.name}: {len(numbers)} numbers came for {len(talks)} conversations")
        return [Verdict(each if isinstance(each, dict) else {self.reward: each}) for each in numbers]

    def _body(self, talks: list[list[Message]]) -> dict[str, Any]:
        body: dict[str, Any] = {"model": self.model} if self.model is not None else {}
        if self.layout == "messages":
            return {**body, "inputs": [{"messages": chat_messages(each)} for each in talks]}
        if self.layout in _ALONE:
            return {**body, "messages": chat_messages(talks[0])}
        if self.layout == "vllm_score":
            replies = [transcript(each[-1:]) for each in talks]
            return {**body, "text_1": [transcript(each[:-1]) for each in talks], "text_2": replies}
        texts = [transcript(each) for each in talks]
        if self.layout == "tei":
            return {"inputs": [[text] for text in texts], "raw_scores": self.raw_scores, "truncate": False}
        return {**body, "text": texts}

    def _read(self, answer: Any, count: int) -> list[Any]:
        if self.layout == "messages":
            return list(answer["scores"])
        if self.layout == "vllm_classify":
            return [answer["data"][0]["probs"][self.index]]
        if self.layout == "vllm_pooling":
            return [self._pooled(answer["data"][0]["data"])]
        if self.layout == "vllm_score":
            return _in_order(answer["data"])
        if self.layout == "sglang":
            rows = answer if isinstance(answer, list) else [answer]
            return [row["embedding"][self.index] for row in rows]
        return [self._labelled(row) for row in answer]

    def _pooled(self, data: Any) -> Any:
        if isinstance(data, list) and data and isinstance(data[0], list):
            data = data[-1]
        return data[self.index] if isinstance(data, list) else data

    def _labelled(self, row: Any) -> Any:
        if self.label is None:
            return row[self.index]["score"]
        return next(each["score"] for each in row if each["label"] == self.label)


def _in_order(rows: list[Any]) -> list[Any]:
    """The scores by their places; EvaluationError where those are not each place once."""
    places = [row["index"] for row in rows]
    if any(type(place) is not int for place in places) or sorted(places) != list(range(len(rows))):
        raise EvaluationError(f"the answer's places are {str(places)[:100]}, not 0 to {len(rows) - 1}", path="layout")
    return [row["score"] for row in sorted(rows, key=lambda row: row["index"])]
