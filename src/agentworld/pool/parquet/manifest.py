"""What an export says of itself, and what became of an import."""

from __future__ import annotations

from pathlib import Path

import msgspec

from agentworld.errors import ConfigError, NotFoundError

FORMAT = "agentworld.parquet"
FORMAT_VERSION = 3  # 1 had no decisions, 2 no datasets
NAME = "manifest.json"


class Manifest(msgspec.Struct, kw_only=True):
    """`rows`: of each file. `where`, `channel`, `dataset`: what was asked for. `media_missing`: media that messages
    show and the pool has not.
    """

    format: str = FORMAT
    format_version: int = FORMAT_VERSION
    schema_version: str
    created_at: float
    where: str | None = None
    channel: str | None = None
    dataset: str | None = None
    rows: dict[str, int] = {}
    media_missing: int = 0


class Imported(msgspec.Struct, kw_only=True):
    """What an import did, in records. `known`: trajectories that were there already and stayed as they are; `deleted`:
    those that have a tombstone; `rejected`: steps that became dead letters. `datasets`: versions that were restored;
    `datasets_known`: those that were there already.
    """

    trajectories: int = 0
    steps: int = 0
    exchanges: int = 0
    rewards: int = 0
    feedback: int = 0
    annotations: int = 0
    known: int = 0
    deleted: int = 0
    rejected: int = 0
    media: int = 0
    datasets: int = 0
    datasets_known: int = 0


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """The last file of an export."""
    (folder / NAME).write_bytes(msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n")


def read_manifest(folder: Path) -> Manifest:
    """The manifest of an export; NotFoundError or ConfigError where there is none that this version reads."""
    path = folder / NAME
    if not path.is_file():
        raise NotFoundError(
            f"there is no export at {folder}: {NAME} is missing", path="path", hint="Name a folder that an export wrote"
        )
    try:
        manifest = msgspec.json.decode(path.read_bytes(), type=Manifest)
    except msgspec.MsgspecError as error:
        raise ConfigError(f"{path} cannot be read: {error}", path="path") from None
    if manifest.format != FORMAT or manifest.format_version > FORMAT_VERSION:
        raise ConfigError(
            f"{path} is {manifest.format} {manifest.format_version}, this version reads {FORMAT} {FORMAT_VERSION}",
            path="path",
            hint="Upgrade AgentWorld",
        )
    return manifest
