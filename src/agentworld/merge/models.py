"""Which models merging computes: those whose hidden states depend on the tokens of their path and on nothing else."""

from __future__ import annotations

from typing import Any

from agentworld.errors import ConfigError

# Decoders whose layers mix tokens by causal attention alone. Rotary positions are given by position ids.
SUPPORTED = ("llama", "mistral", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe")


def check_model(model: Any) -> None:
    """ConfigError where merging would not compute what the model computes, with what it is that stands against it."""
    config = model.config
    kind = getattr(config, "model_type", type(model).__name__)
    if kind not in SUPPORTED:
        raise ConfigError(
            f"merging knows no models of type {kind!r}",
            path="model",
            hint=f"Train it unmerged; merging knows {', '.join(SUPPORTED)}, whose layers mix tokens by attention alone",
        )
    _check_layers(config)
    _check_positions(config)
    _check_dropout(model)


def _check_layers(config: Any) -> None:
    """Where layers have no types of their own, a window is that of all of them."""
    layers = set(getattr(config, "layer_types", None) or ())
    window = getattr(config, "sliding_window", None) if getattr(config, "use_sliding_window", True) else None
    if (layers or not window) and layers <= {"full_attention"}:
        return
    raise ConfigError(
        f"the model has layers of {', '.join(sorted(layers - {'full_attention'})) or 'sliding_attention'}",
        path="model",
        hint="Merging needs full attention in every layer: train it unmerged, or configure it without the window",
    )


def _check_positions(config: Any) -> None:
    """Some rotary embeddings turn all tokens of a forward by angles that depend on the longest path in it."""
    given = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    settings = [given, *(each for each in given.values() if isinstance(each, dict))]
    kinds = {str(each.get("rope_type") or each.get("type")) for each in settings}
    changing = sorted(kind for kind in kinds if "dynamic" in kind or kind == "longrope")
    if changing:
        raise ConfigError(
            f"rotary positions of type {changing[0]!r} depend on the longest sequence of a forward",
            path="model",
            hint="Train it unmerged: in a tree a path would have the angles of a longer one",
        )


def _check_dropout(model: Any) -> None:
    from torch import nn

    kinds = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)
    if model.training and getattr(model.config, "attention_dropout", 0.0):
        what, hint = "attention dropout", "Set attention_dropout to 0"
    else:
        found = (name for name, each in model.named_modules() if isinstance(each, kinds) and each.training and each.p)
        name = next(found, None)
        if name is None:
            return
        what, hint = f"dropout of {name}", "Set its rate to 0"
    raise ConfigError(
        f"{what} draws anew for each path, and merging computes a shared token once", path="model", hint=hint
    )


__all__ = ["SUPPORTED", "check_model"]
