"""Room `cost`: what work costs, before anything runs."""

from lockstep.cost.roofline import Cost, LayerCost, check_profile

__all__ = ["Cost", "LayerCost", "check_profile"]
