"""Evaluations and followers over HTTP as data: bodies, and each call with its path, body and reply type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, TypeVar
from urllib.parse import urlencode

import msgspec

from agentworld.client.calls import Call
from agentworld.client.wire import API
from agentworld.pool.arguments import listed
from agentworld.pool.bounds import wrong_type
from agentworld.pool.results import Page
from agentworld.pool.review_rules import MAX_EVALUATIONS
from agentworld.records import Evaluation, Follower, exact_json

T = TypeVar("T")
FOLLOWERS = "reward:"
"""How the names of runs of evaluators begin; other followers keep their places in the pool's own process alone."""
MAX_STATE = 1024 * 1024
"""Bytes that a run of evaluators keeps beside its place."""


class EvaluationRequest(Evaluation, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """The latest that an evaluator said of a step, a trajectory or a group, or why it failed; digests as base64."""


class EvaluationsRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What evaluators said."""

    evaluations: Annotated[list[EvaluationRequest], msgspec.Meta(max_length=MAX_EVALUATIONS)]


class Kept(msgspec.Struct, frozen=True):
    """How many were kept: those whose target is there."""

    kept: int


class KnownRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The digest of an evaluator, and those of what it would read, as base64."""

    fingerprint: bytes
    contents: Annotated[list[bytes], msgspec.Meta(max_length=MAX_EVALUATIONS)]


class FollowerRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How far a run of evaluators has come: `position` is the last event that it is done with, `state` what it keeps
    besides, as base64, up to 1 MiB.
    """

    name: str
    position: Annotated[int, msgspec.Meta(ge=0)]
    state: Annotated[bytes, msgspec.Meta(max_length=MAX_STATE)] | None = None
    revision: Annotated[int, msgspec.Meta(ge=0)] = 0


class FoundFollower(msgspec.Struct, frozen=True):
    """Where a run is; null where it has saved nothing."""

    follower: Follower | None


def put_evaluations(evaluations: Sequence[Evaluation]) -> Call[Kept]:
    """Keep what evaluators said; the same again changes nothing."""
    sent = listed(evaluations, "Evaluation", "evaluations")
    for number, one in enumerate(sent):
        if not isinstance(one, Evaluation):
            raise wrong_type(one, "an Evaluation", f"evaluations[{number}]")
    return _post("/evaluations", {"evaluations": sent}, Kept)


def known_evaluations(fingerprint: bytes, contents: Sequence[bytes]) -> Call[Page[Evaluation]]:
    """What an evaluator said of these contents."""
    return _post("/evaluations/known", KnownRequest(fingerprint, list(contents)), Page[Evaluation])


def load_follower(name: str) -> Call[FoundFollower]:
    """Where a run is."""
    return Call("GET", f"{API}/followers?{urlencode({'name': name})}", FoundFollower)


def save_follower(name: str, position: int, state: bytes | None, revision: int) -> Call[Follower]:
    """Save where it is. Not retried: a second try would take the first one's save for another process's."""
    call = _post("/followers", FollowerRequest(name=name, position=position, state=state, revision=revision), Follower)
    return msgspec.structs.replace(call, idempotent=False)


def _post(path: str, body: object, reply: type[T]) -> Call[T]:
    return Call("POST", f"{API}{path}", reply, exact_json.encode(body))
