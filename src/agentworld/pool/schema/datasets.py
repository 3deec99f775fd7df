"""Dataset versions: what was selected, row by row, as it was."""

from __future__ import annotations

from sqlalchemy import Column, Float, ForeignKey, Index, LargeBinary, Table, UniqueConstraint

from agentworld.pool.schema.base import Text, Whole, growing, metadata, where_there

# A version is being built while it has no manifest; one whose `began_at` is 0 is on its way out.
datasets = growing(
    "datasets",
    Column("name", Text, nullable=False),
    Column("digest", Text),  # 32 hex digits, once it is frozen
    Column("manifest", Text),  # the DatasetVersion as JSON
    Column("frozen", Whole),  # number of the event that told of it
    Column("began_at", Float, nullable=False),
    UniqueConstraint("name", "digest"),
    where_there("datasets_by_freezing", "frozen"),
    Index("datasets_by_name", "name", "frozen"),
)

# Each is a pin of its trajectory. Of one that was deleted on request the row keeps ids and digests only.
dataset_rows = Table(
    "dataset_rows",
    metadata,
    Column("dataset", Whole, ForeignKey("datasets.pk"), primary_key=True),
    Column("position", Whole, primary_key=True),
    Column("trajectory_id", Text, nullable=False),
    Column("split", Text, nullable=False),
    Column("digest", LargeBinary, nullable=False),
    Column("record", LargeBinary, nullable=False),  # the DatasetRow as JSON, as a zstd frame
    Column("put_at", Float, nullable=False),
    Column("compared", Whole),  # 1 where it has comparisons, which name other trajectories or steps
    Index("dataset_rows_by_trajectory", "trajectory_id", "dataset"),
    Index("dataset_rows_by_split", "dataset", "split", "position"),
    where_there("dataset_rows_compared", "compared"),
)
