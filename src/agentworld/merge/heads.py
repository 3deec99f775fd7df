"""From hidden states to logits, of some states only: a model's output layer, and what is done to its logits then."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentworld.errors import ConfigError

if TYPE_CHECKING:
    import torch


class Head:
    """`module`: the output layer, whose logits are multiplied by `scale` and then drawn in to `cap`, as by
    cap tanh(logits / cap). `vocabulary`: how many logits a state has.
    """

    def __init__(self, module: Any, scale: float, cap: float | None) -> None:
        self.module = module
        self.scale = scale
        self.cap = cap
        self.vocabulary: int = module.weight.shape[0]

    def __call__(self, states: torch.Tensor) -> torch.Tensor:
        """Logits [.., vocabulary] of hidden states [.., width]."""
        logits: torch.Tensor = self.module(states)
        if self.scale != 1.0:
            logits = logits * self.scale
        return logits if self.cap is None else (logits / self.cap).tanh() * self.cap


def head_of(model: Any) -> Head:
    """By what configurations say: Cohere's `logit_scale`, Granite's `logits_scaling`, Gemma's
    `final_logit_softcapping`.
    """
    config = model.config
    scale = float(getattr(config, "logit_scale", None) or 1.0) / float(getattr(config, "logits_scaling", None) or 1.0)
    return Head(model.get_output_embeddings(), scale, getattr(config, "final_logit_softcapping", None))


def check_head(model: Any) -> None:
    """ConfigError where a forward over four tokens shows that logits are made from something else than the decoder's
    last hidden states, or in another way.
    """
    import torch

    head, states, given = head_of(model), [], []
    ids = torch.arange(1, 5, device=next(model.parameters()).device)[None] % head.vocabulary
    hooks = [
        model.get_decoder().register_forward_hook(lambda module, inputs, found: states.append(found[0])),
        head.module.register_forward_hook(lambda module, inputs, found: given.append(inputs[0])),
    ]
    try:
        with torch.no_grad():
            logits = model(input_ids=ids, use_cache=False).logits
    finally:
        for hook in hooks:
            hook.remove()
    as_known = len(states) == len(given) == 1 and torch.equal(states[0], given[0])
    if as_known:
        with torch.no_grad():
            apart = (head(states[0]) - logits).abs().max()
        as_known = bool(apart <= 16 * torch.finfo(logits.dtype).eps * logits.abs().max())
    if not as_known:
        raise ConfigError(
            f"{type(model).__name__} makes its logits by more than an output layer on its last hidden states",
            path="model",
            hint="The reference trainer would train on other log-probabilities than the model has: use another trainer",
        )


__all__ = ["Head", "check_head", "head_of"]
