"""Dataset versions: immutable selections named by what is in them."""

from agentworld.curation.datasets.comparing import diff_datasets, row_changes
from agentworld.curation.datasets.frozen import FrozenTrajectory
from agentworld.curation.datasets.reading import SkippedRow, read_version
from agentworld.curation.datasets.results import DatasetDiff, RowChange, RowOrigin, RowVerdict, Verification
from agentworld.curation.datasets.selecting import create_dataset, fractions_missed
from agentworld.curation.datasets.tracing import trace_row
from agentworld.curation.datasets.verifying import verify_dataset

__all__ = [
    "DatasetDiff",
    "FrozenTrajectory",
    "RowChange",
    "RowOrigin",
    "RowVerdict",
    "SkippedRow",
    "Verification",
    "create_dataset",
    "diff_datasets",
    "fractions_missed",
    "read_version",
    "row_changes",
    "trace_row",
    "verify_dataset",
]
