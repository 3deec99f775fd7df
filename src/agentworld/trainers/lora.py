"""Low-rank adapters on a model's matrices, through peft: only they are trained, and checkpoints hold them alone.

LoRA, Hu et al. 2021 (arXiv:2106.09685): W x becomes W x + (alpha / rank) B A x, with A drawn at random and B 0, so that
the model begins as it was. The model stays the one that transformers made; its matrices are replaced by layers with
an adapter.
"""

from __future__ import annotations

import json
import os
import warnings
from pathlib import Path
from typing import Any

import msgspec

from agentworld.errors import ConfigError, InvalidRequestError

ADAPTER_WEIGHTS, ADAPTER_CONFIG = "adapter_model.safetensors", "adapter_config.json"
_PREFIX = "base_model.model."
"""What names in an adapter's file begin with, as peft, vLLM and SGLang expect."""


class LoraSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`rank` of the adapters; they count alpha / rank. `dropout` of what goes into them, while training.
    `target_modules`: names of the layers that get one, or all-linear for every matrix but the output layer's.
    """

    rank: int = 16
    alpha: float = 32.0
    dropout: float = 0.0
    target_modules: str | tuple[str, ...] = "all-linear"

    def __post_init__(self) -> None:
        if self.rank < 1:
            raise ConfigError(f"rank must be at least 1, not {self.rank}", path="lora.rank")
        if not self.alpha > 0:
            raise ConfigError(f"alpha must be over 0, not {self.alpha}", path="lora.alpha")
        if not 0 <= self.dropout < 1:
            raise ConfigError(f"dropout must be from 0 to below 1, not {self.dropout}", path="lora.dropout")
        if not self.target_modules:
            raise ConfigError("target_modules names no layer", path="lora.target_modules", hint='Use "all-linear"')


def add_lora(model: Any, settings: LoraSettings, *, seed: int = 0) -> None:
    """Give `model` adapters, in place: they alone are trained from now on. `seed`: of their first weights.

    ConfigError where peft is not there, or no layer is of the names.
    """
    peft = _peft()
    import torch

    named = settings.target_modules
    targets = named if isinstance(named, str) else list(named)
    config = peft.LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,
        lora_dropout=settings.dropout,
        target_modules=targets,
        bias="none",
        task_type="CAUSAL_LM",
    )
    model.requires_grad_(False)
    try:
        with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # What peft says of tied layers is an error of ours, below.
            torch.manual_seed(seed)
            peft.inject_adapter_in_model(config, model)
    except ValueError as error:
        kinds = sorted({name.rsplit(".", 1)[-1] for name, part in model.named_modules() if _is_matrix(part)})
        raise ConfigError(
            f"no adapter can be put on {targets}: {str(error).splitlines()[0]}",
            path="lora.target_modules",
            hint=f"Matrices of this model: {', '.join(kinds)}",
        ) from None
    if model.config.tie_word_embeddings and any(
        hasattr(part, "get_delta_weight") for part in (model.get_output_embeddings(), model.get_input_embeddings())
    ):
        raise ConfigError(
            "the output layer of this model is its table of embeddings, and cannot have an adapter of its own",
            path="lora.target_modules",
            hint='Leave it out, or use "all-linear"',
        )


def has_lora(model: Any) -> bool:
    """Whether the model has adapters."""
    return bool(getattr(model, "peft_config", None))


def adapter_weights(model: Any) -> dict[str, Any]:
    """The adapters' tensors, under the names of an adapter's file."""
    found = _peft().get_peft_model_state_dict(model)
    return {f"{_PREFIX}{name}": tensor.detach().contiguous() for name, tensor in found.items()}


def save_adapter(model: Any, folder: Path, base: str) -> None:
    """Write the adapters as peft, vLLM and SGLang read them. `base`: where the model itself is."""
    from safetensors.torch import save_file

    save_file(adapter_weights(model), str(folder / ADAPTER_WEIGHTS), metadata={"format": "pt"})
    config = model.peft_config["default"].to_dict()
    config.update(base_model_name_or_path=base, inference_mode=True)
    text = json.dumps(config, indent=2, sort_keys=True, default=sorted)  # Sets of names, such as target_modules.
    (folder / ADAPTER_CONFIG).write_text(text)


def load_adapter(model: Any, folder: Path) -> None:
    """Put the adapters of a checkpoint in place; InvalidRequestError where they do not fit."""
    from safetensors.torch import load_file

    found = load_file(folder / ADAPTER_WEIGHTS)
    wanted = adapter_weights(model)
    if _shapes(found) != _shapes(wanted):
        differ = sorted({name for name, _ in set(_shapes(found).items()) ^ set(_shapes(wanted).items())})
        raise InvalidRequestError(f"its adapters are others: {len(differ)} tensors differ, such as {differ[0]}")
    _peft().set_peft_model_state_dict(model, {name.removeprefix(_PREFIX): each for name, each in found.items()})


def _shapes(tensors: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """The shape of each."""
    return {name: tuple(tensor.shape) for name, tensor in tensors.items()}


def merged_weights(model: Any) -> dict[str, Any]:
    """The tensors of the model without adapters that computes the same: W + (alpha / rank) B A under W's name.

    Of tensors that share storage, such as a tied output layer, the first only. The model is left as it is.
    """
    import torch

    deltas = {name: part for name, part in model.named_modules() if hasattr(part, "get_delta_weight")}
    kept: dict[str, Any] = {}
    seen: set[tuple[int, tuple[int, ...]]] = set()
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            owner, _, leaf = name.rpartition(".")
            layer, inside, _ = owner.partition(".lora_")
            if inside and layer in deltas:
                continue
            storage = (tensor.data_ptr(), tuple(tensor.shape))
            if storage in seen:
                continue
            seen.add(storage)
            base = owner.removesuffix(".base_layer")
            plain = tensor.detach()
            if base in deltas and leaf == "weight":
                plain = plain + deltas[base].get_delta_weight("default").to(plain.dtype)
            kept[f"{base}.{leaf}"] = plain.contiguous()
    return kept


def save_merged(model: Any, folder: Path) -> Path:
    """Write the model without adapters to `folder`, whole or not at all, for engines that load whole weights."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / ".model.partial"
    save_file(merged_weights(model), str(partial), metadata={"format": "pt"})
    os.replace(partial, folder / "model.safetensors")
    model.config.save_pretrained(folder)
    return folder


def _is_matrix(part: Any) -> bool:
    return type(part).__name__ in ("Linear", "Conv1D")


def _peft() -> Any:
    try:
        import peft
    except ImportError:
        raise ConfigError("LoRA needs peft", path="lora", hint="pip install 'agentworld[lora]'") from None
    return peft
