"""Checkpoints on disk: weights (of a model with adapters, those alone), the head that a method trains beside them,
optimizer, and which batches went into them.

A checkpoint is a folder `checkpoint-NNNNNN` that appears whole, by rename after fsync, or not at all. The batches are
acknowledged after that, so after a crash the pool's state follows from the newest folder (see Pool.resume).
"""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from agentworld.errors import AgentWorldError, ConfigError, InvalidRequestError
from agentworld.syncing import sync
from agentworld.trainers.heads import load_head, save_head
from agentworld.trainers.lora import has_lora, load_adapter, save_adapter

_NAME = re.compile(r"checkpoint-(\d{6,})")
# Ids of applied batches that a checkpoint carries: more than a trainer can hold leases on.
APPLIED_KEPT = 256


class CheckpointRecord(msgspec.Struct, kw_only=True):
    """`updates`: optimizer updates so far. `applied`: ids of the batches in these weights, newest last.

    `version`, `run`: the policy that these weights are published as. `settings`: what they were trained with; `fixed`:
    what else a job that goes on must share, such as its model. `metrics`: of the last batch. `extra`: the caller's own.
    """

    updates: int
    version: int
    run: str
    method: str
    applied: list[str] = []
    settings: dict[str, Any] = {}
    fixed: dict[str, Any] = {}
    metrics: dict[str, float | None] = {}
    extra: dict[str, Any] = {}


def save_checkpoint(
    folder: Path, model: Any, optimizer: Any, record: CheckpointRecord, *, head: Any = None, keep: int = 2
) -> Path:
    """Write the next checkpoint under `folder` and drop all but the newest `keep`; returns its path.

    AgentWorldError where the disk does not take it, as one that is full: those before it stay, and nothing of it.
    """
    existing = _numbered(folder) if folder.is_dir() else []
    number = existing[-1][0] + 1 if existing else 1
    final = folder / f"checkpoint-{number:06d}"
    partial = folder / f".partial-{number:06d}"
    record.applied = record.applied[-APPLIED_KEPT:]
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        _write(partial, model, optimizer, record, head)
        partial.rename(final)
        sync(folder)
    except Exception as error:
        if not _of_the_disk(error):
            raise
        for left in (partial, final):
            shutil.rmtree(left, ignore_errors=True)
        raise AgentWorldError(
            f"{final} could not be written: {_cause(error)}; {_free(folder)} are free there",
            hint="Make room, and run the same again: it goes on after the newest checkpoint",
        ) from error
    for _, old in existing[: max(0, len(existing) + 1 - keep)]:
        shutil.rmtree(old)
    return final


def _write(partial: Path, model: Any, optimizer: Any, record: CheckpointRecord, head: Any) -> None:
    """All files of a checkpoint, on the disk when this returns."""
    import torch
    from safetensors.torch import save_file

    if has_lora(model):
        save_adapter(model, partial, str(record.fixed.get("model", model.config.name_or_path)))
    else:
        save_file(untied_weights(model), str(partial / "model.safetensors"), metadata={"format": "pt"})
        model.config.save_pretrained(partial)
    with (partial / "optimizer.pt").open("wb") as file:  # Written by Python, its error says what the system says.
        torch.save(optimizer.state_dict(), file)
    (partial / "trainer.json").write_bytes(msgspec.json.format(msgspec.json.encode(record), indent=2))
    inner = save_head(head, partial) if head is not None else []
    for path in (*inner, *(each for each in partial.iterdir() if each.is_file()), partial):
        sync(path)


def _of_the_disk(error: Exception) -> bool:
    """Whether a write failed: safetensors and torch have errors of their own for that."""
    from safetensors import SafetensorError

    return isinstance(error, OSError | SafetensorError) or (
        isinstance(error, RuntimeError) and ("PytorchStreamWriter" in str(error) or "inline_container" in str(error))
    )


def _cause(error: BaseException) -> str:
    """The system's own words where they are in the chain of errors: torch reports a full disk as a wrong position."""
    found: BaseException | None = error
    while found is not None:
        if isinstance(found, OSError) and found.strerror:
            return found.strerror
        found = found.__cause__ or found.__context__
    return str(error).splitlines()[0]


def _free(folder: Path) -> str:
    while not folder.exists():
        folder = folder.parent
    return f"{shutil.disk_usage(folder).free / 2**20:,.1f} MiB"


def latest_checkpoint(folder: Path) -> Path | None:
    """The newest checkpoint under `folder`, None where there is none."""
    existing = _numbered(folder) if folder.is_dir() else []
    return existing[-1][1] if existing else None


def read_record(checkpoint: Path) -> CheckpointRecord:
    """What the checkpoint says of itself."""
    try:
        return msgspec.json.decode((checkpoint / "trainer.json").read_bytes(), type=CheckpointRecord)
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigError(f"{checkpoint} is not a checkpoint of the trainer: {error}") from None


def load_checkpoint(checkpoint: Path, model: Any, optimizer: Any, *, head: Any = None) -> CheckpointRecord:
    """Load weights and optimizer state in place; returns the record. ConfigError where they do not fit the model."""
    import torch

    record = read_record(checkpoint)
    load_model(checkpoint, model, head)
    with _fitting(checkpoint):
        optimizer.load_state_dict(torch.load(checkpoint / "optimizer.pt", weights_only=True))
    return record


def load_model(checkpoint: Path, model: Any, head: Any = None) -> None:
    """Load weights, or of a model with adapters these, and the head's, in place; ConfigError where they do not fit."""
    from agentworld.engines.builtin.models import install_weights, read_weights

    with _fitting(checkpoint):
        if has_lora(model):
            load_adapter(model, checkpoint)
        else:
            install_weights(model, read_weights(model, checkpoint))
        if head is not None:
            load_head(head, checkpoint)


@contextlib.contextmanager
def _fitting(checkpoint: Path) -> Iterator[None]:
    try:
        yield
    except (InvalidRequestError, OSError, RuntimeError, ValueError, KeyError) as error:
        raise ConfigError(f"{checkpoint} does not fit this model: {str(error).splitlines()[0]}") from None


def untied_weights(model: Any) -> dict[str, Any]:
    """The model's tensors by name; of tensors that share storage, such as a tied output layer, the first only."""
    kept: dict[str, Any] = {}
    seen: set[tuple[int, tuple[int, ...]]] = set()
    for name, tensor in model.state_dict().items():
        storage = (tensor.data_ptr(), tuple(tensor.shape))
        if storage not in seen:
            seen.add(storage)
            kept[name] = tensor.detach().contiguous()
    return kept


def _numbered(folder: Path) -> list[tuple[int, Path]]:
    found = []
    for path in folder.iterdir():
        match = _NAME.fullmatch(path.name)
        if match and path.is_dir():
            found.append((int(match.group(1)), path))
    return sorted(found)
