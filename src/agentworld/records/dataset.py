"""What a dataset version is made of: what was selected, as it was then, and how it was divided."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from agentworld.records.signals import Feedback

DatasetUnit = Literal["trajectory", "step"]
DatasetState = Literal["building", "frozen"]
SplitBy = Literal["task", "group", "trajectory"]

# How `digest` of a version and of its rows are computed; another number gives other names.
DATASET_FORMAT = 1


class FrozenStep(msgspec.Struct, frozen=True, omit_defaults=True):
    """A step that was selected, and what was said of it then.

    `digest`: 32 hex digits over its ids, mask, log-probabilities, messages, tools, policy and sampling.
    """

    step_id: str
    digest: str
    rewards: dict[str, float] = {}
    reward: float | None = None
    labels: dict[str, Any] = {}


class DatasetRow(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A trajectory of a version with its selected steps in order.

    `position`: from 0, in the order of trajectory ids. `digest`: 32 hex digits over everything here but the position
    and itself. `cluster`: the smallest trajectory id among those that were held together with it by the same task or by
    being nearly the same. `group_key`: 32 hex digits for the group that it is in. `task_digest`: 32 hex digits over
    the whole task. `feedback`: on the trajectory and its steps, as it was. `weight`: as curation said.
    """

    position: int
    trajectory_id: str
    digest: str = ""
    split: str = "train"
    steps: list[FrozenStep] = []
    task_key: str | None = None
    cluster: str | None = None
    group_key: str | None = None
    task_digest: str | None = None
    rewards: dict[str, float] = {}
    reward: float | None = None
    labels: dict[str, Any] = {}
    weight: float | None = None
    feedback: list[Feedback] = []


class Splits(msgspec.Struct, kw_only=True, frozen=True):
    """How rows are divided. `fractions` add up to 1. `by`: what stays together. `near_duplicates`: the estimated
    Jaccard similarity from which two texts stay together too; null keeps them apart. `seed` orders what is divided.
    """

    fractions: dict[str, float] = msgspec.field(default_factory=lambda: {"train": 1.0})
    by: SplitBy = "task"
    near_duplicates: float | None = 0.8
    seed: int = 0


class Selection(msgspec.Struct, kw_only=True, frozen=True):
    """What was asked for. `where` reads trajectories, or steps where `unit` is step. Excluded steps are never taken,
    and of trajectories only those that are ready, or complete with `unrewarded`.
    """

    where: str | None = None
    channel: str | None = "train"
    unit: DatasetUnit = "trajectory"
    unrewarded: bool = False
    splits: Splits = msgspec.field(default_factory=Splits)


class SplitCount(msgspec.Struct, kw_only=True, frozen=True):
    """How much there is of one split. Tokens are those of replies."""

    rows: int = 0
    steps: int = 0
    response_tokens: int = 0


class PolicyNote(msgspec.Struct, kw_only=True, frozen=True):
    """A policy of rules that was in force for a channel when the version was made."""

    channel: str
    name: str
    digest: str


class DatasetVersion(msgspec.Struct, kw_only=True):
    """The manifest of an immutable selection, named by what is in it: `version` is `NAME@DIGEST`.

    `digest`: 32 hex digits over the digests of all rows with their splits, so that the same selection has the same name
    wherever and whenever it is made. `manifest_digest`: over the rest of the manifest. `code_version`: of AgentWorld.
    """

    version: str
    name: str
    digest: str
    selection: Selection
    format: int = DATASET_FORMAT
    state: DatasetState = "frozen"
    rows: int = 0
    steps: int = 0
    splits: dict[str, SplitCount] = {}
    policies: list[PolicyNote] = []
    parents: list[str] = []
    code_version: str = ""
    created_at: float = 0.0
    created_by: str | None = None
    note: str | None = None
    manifest_digest: str = ""
