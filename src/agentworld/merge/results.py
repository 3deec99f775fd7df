"""What is asked of merging and what is answered, as records: the same in this process, over HTTP and in commands."""

from __future__ import annotations

from typing import Literal

import msgspec

from agentworld.errors import InvalidRequestError
from agentworld.merge.costs import CostBound

Stopped = Literal["tokens", "steps", "rows"]
MOST_TOKENS = 20_000_000
"""Flat tokens that are read at once where nothing else is said; building their tree takes about 20 bytes each."""
SERVED_TOKENS = 5_000_000
"""As many a server reads where nothing else is said; it reads the most that is above here for who asks for them."""
MOST_NODES = 20_000
MOST_ENDS = 20
MOST_IDS = 512


class MergeSource(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is read: one of `group`, `batch` (its id), `consumer` (its newest batch), `dataset` (NAME or NAME@DIGITS; of
    one `split`, or of all) and `trajectory`; or steps for which `where` holds, of `channel`, which also narrow a group
    or a trajectory. With nothing, all steps.
    """

    group: str | None = None
    batch: str | None = None
    consumer: str | None = None
    dataset: str | None = None
    split: str | None = None
    trajectory: str | None = None
    where: str | None = None
    channel: str | None = None

    def check(self) -> None:
        """InvalidRequestError where two things are named, or one does not go with another."""
        kinds = ("group", "batch", "consumer", "dataset", "trajectory")
        named = [name for name in kinds if getattr(self, name) is not None]
        if len(named) > 1:
            raise InvalidRequestError(f"{' and '.join(named)} exclude each other", path=named[1], hint="Name one")
        if self.split is not None and self.dataset is None:
            raise InvalidRequestError("split goes with dataset", path="split", hint="Name the dataset too")
        if named and named[0] in ("batch", "consumer", "dataset"):
            for name in ("where", "channel"):
                if getattr(self, name) is not None:
                    raise InvalidRequestError(
                        f"{name} does not go with {named[0]}",
                        path=name,
                        hint=f"What is in it was chosen already; {name} goes with group, trajectory, or alone",
                    )

    def name(self) -> str:
        """What it is, for people."""
        parts = [f"{name} {getattr(self, name)}" for name in self.__struct_fields__ if getattr(self, name) is not None]
        return ", ".join(parts) or "all steps"


class TreeNumbers(msgspec.Struct, frozen=True, kw_only=True):
    """One token tree. `total`: tokens of all sequences; `joined`: with sequences that another goes on left out, as
    trainers compute that join turns into rows; `unique`: of the tree. `ratio`: C, total by unique, 1 for nothing;
    `joined_ratio`: joined by unique. `depth`: of the longest path in tokens. `leaves`: paths that no other goes on.
    `forks`: places where paths part, and `branching`: the mean of the branches there; `widest`: the most. `reasons`:
    why branches beyond the first of a fork are there: a step's fork reason, `rollout` for one of another trajectory,
    `unshared` for one that does not even begin alike, and `other`.
    """

    sequences: int
    total: int
    joined: int
    unique: int
    ratio: float
    joined_ratio: float
    depth: int
    leaves: int
    forks: int
    branching: float
    widest: int
    reasons: dict[str, int]


class UnitNumbers(TreeNumbers, frozen=True, kw_only=True):
    """The tree of one unit alone: a group, a trajectory that is in none, or a batch's unit."""

    unit: str


class PackedNumbers(msgspec.Struct, frozen=True, kw_only=True):
    """Micro-batches under a budget of tokens. `tokens`: computed in all, `bound`: what no packing is below (the unique
    ones), `lost`: the share that is computed more often than that. `fewest`: micro-batches that are needed at least.
    `left_out`: sequences that are over the budget by themselves.
    """

    budget: int
    micro_batches: int
    fewest: int
    tokens: int
    bound: int
    lost: float
    fullest: int
    left_out: int


class MergeStats(msgspec.Struct, frozen=True, kw_only=True):
    """What merging saves. `whole`: one tree of all that was read; `apart`: unique tokens where each unit has a tree of
    its own. `trained`: tokens that the policy sampled; `trained_unique`: their places in the tree. `units`: how many;
    `worst`: those that share least, by their ratio, at most 10. `vocabularies`: how many the ids are of, which share
    nothing with one another. `stopped`: at what of the budget reading ended; null where all was read. The rest: see
    Sequences.
    """

    source: str
    whole: TreeNumbers
    apart: int
    trained: int
    trained_unique: int
    units: int
    worst: list[UnitNumbers]
    vocabularies: int
    packing: PackedNumbers | None = None
    cost: CostBound | None = None
    excluded: int = 0
    without_ids: int = 0
    missing: int = 0
    stopped: Stopped | None = None


class MergeNode(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A stretch of tokens without a fork or an end in it. `id`, `parent`: numbers within the list, -1 above roots.
    `start`: the depth of its first token; `length`: tokens. `sequences`: how many go through it. `ends`: steps whose
    sequences end with it, the first 20 of `ending`. `reason`: why it branched off, null where it did not. `unit`: the
    group or trajectory, where all of its sequences are of one. `hidden`: nodes behind it that were left out, and
    `hidden_tokens` unique tokens in them. `token_ids`: the first ids, where they were asked for; `vocabulary`: what
    they are of.
    """

    id: int
    parent: int
    start: int
    length: int
    sequences: int
    ending: int = 0
    ends: list[str] = []
    reason: str | None = None
    unit: str | None = None
    hidden: int = 0
    hidden_tokens: int = 0
    token_ids: list[int] = []
    vocabulary: str | None = None


class MergeTree(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes in preorder, parents first. `nodes_in_all`: how many the tree has. `total`, `unique`: its tokens flat and
    merged, whatever is left out here. `stopped` and the counts behind it: see Sequences.
    """

    source: str
    nodes: list[MergeNode]
    nodes_in_all: int
    sequences: int
    total: int
    unique: int
    excluded: int = 0
    without_ids: int = 0
    missing: int = 0
    stopped: Stopped | None = None
