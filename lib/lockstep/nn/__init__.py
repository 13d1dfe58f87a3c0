"""Room `nn`: layers forward and backward, the networks that the labs train, optimizers.

Start with `functional/windows.py` for the layers and `models/__init__.py` for the networks.
"""

from lockstep.nn.layers import with_layers
from lockstep.nn.models import MODELS, LeNet
from lockstep.nn.optimizers import LARS, SGD, Adam

__all__ = ["LARS", "MODELS", "SGD", "Adam", "LeNet", "with_layers"]
