"""Room `cost`: what work costs, before anything runs."""

from lockstep.cost.roofline import Cost, LayerCost, check_profile, seconds_of

__all__ = ["Cost", "LayerCost", "check_profile", "seconds_of"]
