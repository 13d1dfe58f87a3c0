"""Room `nn`: the layers and the networks that the labs train; start with `models/lenet.py`."""

from lockstep.nn.models import MODELS, LeNet
from lockstep.nn.optimizers import LARS

__all__ = ["LARS", "MODELS", "LeNet"]
