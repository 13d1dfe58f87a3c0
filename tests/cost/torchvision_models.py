"""torchvision's classification models without numbers, and the sizes that its own table was made with."""

import torch
from torchvision.models import get_model_builder, get_model_weights
from torchvision.models.regnet import BlockParams


def build(name, **options):
    """The model on the meta device, googlenet as its table counts it: without the auxiliary classifiers."""
    if name in ("googlenet", "inception_v3"):
        options.setdefault("init_weights", False)
    if name == "googlenet":
        options.setdefault("aux_logits", False)
    with torch.device("meta"):
        return get_model_builder(name)(**options)


def published(name):
    """(input size, parameters, GMACs with 3 decimals) of each set of weights that torchvision publishes."""
    for weights in get_model_weights(name):
        side = weights.transforms().crop_size[0]
        yield (3, side, side), weights.meta["num_params"], weights.meta["_ops"]


def _regnet_on_the_cpu(cls, *args, **kwargs):
    # A regnet computes its widths with tensors while it is built, which needs their numbers.
    with torch.device("cpu"):
        return _widths(cls, *args, **kwargs)


_widths = BlockParams.from_init_params.__func__
BlockParams.from_init_params = classmethod(_regnet_on_the_cpu)
