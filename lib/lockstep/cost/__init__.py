"""Room `cost`: what work costs, before anything runs."""

from lockstep.cost.roofline import Cost, LayerCost

__all__ = ["Cost", "LayerCost"]
