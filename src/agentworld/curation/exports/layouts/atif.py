"""Whole trajectories as documents of ATIF, one a file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from agentworld.curation.datasets.frozen import FrozenTrajectory
from agentworld.curation.datasets.provenance import PROVENANCE
from agentworld.curation.exports.atif import to_atif
from agentworld.curation.exports.columns import Kind
from agentworld.curation.exports.options import ExportOptions
from agentworld.curation.exports.registry import Row, Work, layout, origin_of
from agentworld.errors import NotFoundError


def columns(options: ExportOptions) -> Mapping[str, Kind]:
    """The document is the file."""
    return {"document": "json"}


@layout(
    "atif",
    says="Whole trajectories with ids and log-probabilities, one document a file: Harbor and others, and `import`.",
    columns=columns,
    reads=("messages", "tokens", "logprobs"),
    files=("json",),
)
class Atif:
    """One document a trajectory."""

    def __init__(self, work: Work) -> None:
        self._work = work

    def rows(self, frozen: FrozenTrajectory) -> Iterator[Row]:
        """See LayoutRows."""
        source = self._work.source
        try:
            document = to_atif(frozen.trajectory, frozen.steps, feedback=frozen.row.feedback, media=source.media)
        except NotFoundError:
            self._work.left_out["media_not_there"] += 1
            return
        yield {"document": document, PROVENANCE: origin_of(frozen.steps)}

    def rest(self) -> Iterator[Row]:
        """Nothing."""
        return iter(())
