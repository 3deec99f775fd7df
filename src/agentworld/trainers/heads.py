"""A number from each hidden state: values of a critic, or whether a step was good. A linear layer of its own.

It begins at 0, so that a job draws nothing, and a model begins to change by what the layer has learnt already.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentworld.errors import InvalidRequestError
from agentworld.trainers.forward import States

if TYPE_CHECKING:
    import torch

HEAD = Path("head") / "head.safetensors"
"""In a checkpoint. Not beside the model's own files: engines load every safetensors of a folder."""


def new_head(model: Any) -> torch.nn.Linear:
    """A layer from the model's hidden states to one number, of 0s, at least in float32 and where the model is."""
    import torch

    output = model.get_output_embeddings().weight
    dtype = torch.promote_types(output.dtype, torch.float32)
    head = torch.nn.Linear(output.shape[1], 1, dtype=dtype, device=output.device)
    with torch.no_grad():
        head.weight.zero_()
        head.bias.zero_()
    return head


def head_scores(head: torch.nn.Linear, states: States) -> torch.Tensor:
    """The number of each marked token's state, [N]."""
    import torch

    found: torch.Tensor = head(states.hidden.to(head.weight.dtype))[:, 0]
    return found[torch.from_numpy(states.rows).to(found.device)]


def save_head(head: torch.nn.Linear, checkpoint: Path) -> list[Path]:
    """Write it into a checkpoint; returns what is there now, files before their folders."""
    from safetensors.torch import save_file

    path = checkpoint / HEAD
    path.parent.mkdir()
    save_file({name: each.detach().contiguous() for name, each in head.state_dict().items()}, str(path))
    return [path, path.parent]


def load_head(head: torch.nn.Linear, checkpoint: Path) -> None:
    """Take its numbers from a checkpoint; InvalidRequestError where there are none, or of another width."""
    from safetensors.torch import load_file

    path = checkpoint / HEAD
    if not path.is_file():
        raise InvalidRequestError("it holds no head: what was trained then had none")
    head.load_state_dict(load_file(path))
