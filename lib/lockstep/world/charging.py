"""Spread a model's cost over its layers, so that each gradient is ready at its own time.

Floor 1, room `world`. A layer's forward cost is spent when its forward has run. Its backward cost is
spent when the gradient of its output arrives: that is before autograd computes the layer's own gradients
and hands them to whoever listens, so communication that a parameter's hook launches starts after the
cost of the layer, and while the layers before it are still to come. A hook on the module's backward
would be too late: parameters' gradients are accumulated before it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from lockstep.cost import Cost, LayerCost, check_profile
from lockstep.nn.outputs import tensors_in


class Charge:
    """The hooks of one `charge` call; `remove()` takes them away, also from graphs that were built before.

    seconds: how long a cost takes this rank. spend: spends seconds, under a name. begin: hears that a forward begins.
    """

    def __init__(
        self,
        model: nn.Module,
        profile: Mapping[str, LayerCost],
        seconds: Callable[[Cost | float], float],
        spend: Callable[[str, float], None],
        begin: Callable[[], None] | None = None,
    ) -> None:
        self._spend: Callable[[str, float], None] | None = spend
        check_profile(model, profile)
        costs = [(name, seconds(cost.forward), seconds(cost.backward)) for name, cost in profile.items()]
        self._hooks = [self._listen(model, *cost) for cost in costs]
        if begin is not None:
            modules = [model.get_submodule(name) for name in profile]
            self._hooks += [module.register_forward_pre_hook(lambda *_: begin()) for module in modules]

    def remove(self) -> None:
        """Charge nothing from now on."""
        self._spend = None
        for hook in self._hooks:
            hook.remove()

    def _listen(self, model: nn.Module, name: str, forward: float, backward: float) -> Any:
        shown = name or type(model).__name__

        def arrived(_: Tensor) -> None:
            self._charge(f"backward {shown}", backward)

        def ran(_: nn.Module, __: Any, output: Any) -> None:
            self._charge(f"forward {shown}", forward)
            outputs = [tensor for tensor in tensors_in(output) if tensor.requires_grad]
            if len(outputs) == 1:
                outputs[0].register_hook(arrived)
            elif outputs:
                torch.autograd.graph.register_multi_grad_hook(outputs, arrived, mode="any")

        return model.get_submodule(name).register_forward_hook(ran)

    def _charge(self, name: str, seconds: float) -> None:
        if self._spend is not None and seconds:
            self._spend(name, seconds)
