"""One training step, the same for who predicts its memory and for who measures it.

Floor 1, room `cost`; read `peak.py` next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

OPTIMIZERS = ("sgd", "momentum", "adam", "adamw")


def check_optimizer(name: str) -> str:
    """The name itself; raises ValueError for an optimizer whose memory is not known here."""
    if name not in OPTIMIZERS:
        raise ValueError(f"optimizer is {name!r}; known are {', '.join(OPTIMIZERS)}")
    return name


def make_optimizer(name: str, parameters: Iterable[Tensor]) -> torch.optim.Optimizer:
    """The optimizer of that name, one parameter after the other, so that its temporaries are as small as they can be.

    On a GPU PyTorch itself would take all parameters together (`foreach`), which is faster and needs more.
    Raises ValueError for an unknown name.
    """
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    lr = 1e-4  # its size makes no difference to memory
    match check_optimizer(name):
        case "sgd":
            return torch.optim.SGD(trained, lr=lr, foreach=False)
        case "momentum":
            return torch.optim.SGD(trained, lr=lr, momentum=0.9, foreach=False)
        case "adam":
            return torch.optim.Adam(trained, lr=lr, foreach=False)
        case _:
            return torch.optim.AdamW(trained, lr=lr, foreach=False)


def training_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, images: Tensor, labels: Tensor, mark: Callable[[str], None]
) -> None:
    """Forward, cross-entropy, backward, update. `mark(part)` is called where a part of the step begins.

    Raises TypeError when the model does not return one tensor of logits (N, K).
    """
    mark("forward")
    optimizer.zero_grad()
    logits = model(images)
    if not isinstance(logits, Tensor) or logits.dim() != 2:
        raise TypeError(
            f"the step needs a model that returns logits of shape (N, K), and {type(model).__name__} returns "
            f"{type(logits).__name__}{list(logits.shape) if isinstance(logits, Tensor) else ''}"
        )
    loss = cross_entropy(logits, labels)
    mark("backward")
    loss.backward()
    mark("update")
    with torch.device("cpu"):  # in torch 2.11 Adam counts its steps on the default device, which may have no numbers
        optimizer.step()
