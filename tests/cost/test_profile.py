"""What a model costs, held to torchvision's own table, to FlopCounterMode and to what a real pass keeps."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode
from torchvision_models import build, published

from lockstep.cost import Cost, measure_saved_bytes, profile
from lockstep.nn import layers as ours
from lockstep.nn.models import resnet18

# A model of each family; `bench/cost.py` holds all of torchvision's models to the table. Those that run quickly are
# measured as well, at their native size; the bench measures transformers, too.
MEASURED = (
    "alexnet", "squeezenet1_1", "resnet18", "mobilenet_v3_small", "mnasnet0_5", "googlenet", "shufflenet_v2_x0_5",
    "efficientnet_b0", "regnet_y_400mf",
)  # fmt: skip
COUNTED = ("vgg16", "vgg11_bn", "resnet50", "inception_v3", "convnext_tiny", "swin_t", "vit_b_32")

# Multiply-adds at 224x224 and parameters, where torchvision prints only 3 decimals.
EXACT = {
    "alexnet": (714_188_480, 61_100_840),
    "vgg16": (15_470_264_320, 138_357_544),
    "resnet18": (1_814_073_344, 11_689_512),
    "resnet50": (4_089_184_256, 25_557_032),
}


def holds_the_table(name, found, parameters, gigamacs):
    assert found.parameters == parameters
    assert round(found.macs / found.batch / 1e9, 3) == gigamacs
    if name in EXACT:
        assert (found.macs // found.batch, found.parameters) == EXACT[name]


@pytest.mark.parametrize("name", MEASURED)
def test_torchvisions_table_and_the_bytes_that_a_real_pass_keeps(name):
    model = build(name)
    size, parameters, gigamacs = next(published(name))
    found = profile(model, size, 2)
    holds_the_table(name, found, parameters, gigamacs)
    real = model.to_empty(device="cpu")
    with torch.no_grad():
        for tensor in (*real.parameters(), *real.buffers()):
            tensor.zero_()
    assert measure_saved_bytes(real, torch.zeros(2, *size)) == found.saved_bytes


@pytest.mark.parametrize("name", COUNTED)
def test_torchvisions_table(name):
    size, parameters, gigamacs = next(published(name))
    holds_the_table(name, profile(build(name).eval(), size), parameters, gigamacs)


def test_where_alexnets_parameters_and_multiply_adds_are():
    # Krizhevsky 2014 rests on these shares: 95.96 % of the parameters, 8.2 % of the multiply-adds.
    found = profile(build("alexnet"), (3, 224, 224))
    connected = [layer for layer in found.layers if layer.kind == "Linear"]
    assert sum(layer.parameters for layer in connected) / found.parameters == pytest.approx(0.9596, abs=5e-5)
    assert sum(layer.macs for layer in connected) / found.macs == pytest.approx(0.082, abs=5e-4)


def test_resnet50_keeps_what_was_measured_at_batch_32():
    # 2,622.16 MiB by saved-tensor hooks on a real forward pass with its running statistics (0.20 MiB) counted in;
    # `bench/cost.py` measures it again.
    assert profile(build("resnet50"), (3, 224, 224), 32).saved_bytes / 2**20 == pytest.approx(2622.16, rel=1e-3)


class TestBackward:
    def test_is_twice_the_forward_pass_but_for_the_first_layer(self):
        first, second = profile(nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 4, 3, stride=2)), (3, 9, 9), 2).layers
        assert (first.macs, first.backward_macs) == (2 * 49 * 27 * 8, 2 * 49 * 27 * 8)
        assert (second.macs, second.backward_macs) == (2 * 9 * 72 * 4, 2 * 2 * 9 * 72 * 4)

    def test_is_that_of_flop_counter_mode_without_groups(self):
        model = resnet18(10, 32)
        with FlopCounterMode(display=False) as counter:
            model(torch.zeros(2, 3, 32, 32)).sum().backward()
        assert profile(model, (3, 32, 32), 2).flops == counter.get_total_flops()

    def test_of_a_grouped_convolution_is_twice_too(self):
        # FlopCounterMode counts the weight's gradient of a grouped convolution once for each group (pytorch#183405):
        # with 4 groups it says 5.0 times the forward pass.
        model = nn.Sequential(nn.ReLU(), nn.Conv2d(8, 8, 3, groups=4, bias=False))
        x = torch.zeros(2, 8, 6, 6, requires_grad=True)
        with FlopCounterMode(display=False) as counter:
            y = model(x)
            forward = counter.get_total_flops()
            y.sum().backward()
        body = nn.Sequential(nn.Conv2d(8, 8, 1), *model)
        grouped = profile(body, (8, 6, 6), 2).layers[-1]
        assert grouped.macs == forward / 2 == 2 * 16 * 8 * 18
        assert grouped.backward_macs == 2 * grouped.macs
        assert (counter.get_total_flops() - forward) / forward in (2.0, 5.0)

    def test_frozen_layers_cost_less(self):
        model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 5))
        model[0].requires_grad_(False)
        found = profile(model, (3,), 2)
        assert [layer.backward_macs for layer in found.layers] == [0, 2 * 4 * 5]
        assert (found.parameters, found.trainable) == (41, 25)


class TestMemoryKept:
    @pytest.mark.parametrize(
        ("model", "expected"),
        [
            # input and output of the ReLU: 2 x 4 x 36 floats each, one being the other's memory when in place
            (nn.Sequential(nn.Conv2d(3, 4, 1), nn.ReLU(), nn.Conv2d(4, 1, 1)), 4 * 2 * 36 * (3 + 4)),
            (nn.Sequential(nn.Conv2d(3, 4, 1), nn.ReLU(inplace=True), nn.Conv2d(4, 1, 1)), 4 * 2 * 36 * (3 + 4)),
            # pooling keeps its input and where the maxima were, 8 bytes each
            (nn.Sequential(nn.Conv2d(3, 4, 1), nn.MaxPool2d(2)), 4 * 2 * 36 * (3 + 4) + 8 * 2 * 4 * 9),
            # batch norm keeps its input, a mean and a deviation for each channel
            (nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)), 4 * 2 * 36 * (3 + 4) + 4 * 2 * 4),
            # dropout keeps its mask, in floats on the CPU
            (nn.Sequential(nn.Conv2d(3, 4, 1), nn.Dropout()), 4 * 2 * 36 * (3 + 4)),
            (nn.Sequential(nn.Conv2d(3, 4, 1), nn.Flatten(), nn.Linear(144, 2)), 4 * 2 * 36 * (3 + 4)),
        ],
        ids=["relu", "in place", "pool", "batch norm", "dropout", "view"],
    )
    def test_each_piece_once(self, model, expected):
        assert profile(model, (3, 6, 6), 2).saved_bytes == expected
        assert measure_saved_bytes(model, torch.zeros(2, 3, 6, 6)) == expected

    def test_grows_with_the_type_and_masks_do_not(self):
        model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.MaxPool2d(2))
        single, double = (profile(model, (3, 6, 6), dtype=dtype) for dtype in (torch.float32, torch.float64))
        assert double.saved_float_bytes == 2 * single.saved_float_bytes
        assert single.saved_bytes - single.saved_float_bytes == double.saved_bytes - double.saved_float_bytes == 8 * 36


def test_layers_written_by_hand_cost_what_torchs_do():
    # Inside a hand-written autograd function nothing requires a gradient, so a count by that says 0 on the way back.
    def model(kind):
        own = kind.Conv2d(4, 6, 3, padding=1, groups=2), kind.ReLU(), kind.Conv2d(6, 2, 3)
        return nn.Sequential(nn.Conv2d(4, 4, 1), *own)

    torchs, by_hand = (profile(model(kind), (4, 7, 7), 2) for kind in (nn, ours))
    assert [layer.macs for layer in torchs.layers if layer.macs] == [
        layer.macs for layer in by_hand.layers if layer.macs
    ]
    assert torchs.backward_macs == by_hand.backward_macs > 0


def test_tied_parameters_count_once_and_the_model_is_left_alone():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[1].weight = model[0].weight
    before = [p.clone() for p in model.parameters()]
    found = profile(model, (4,), 3)
    assert found.parameters == 16 + 4 + 4 == sum(layer.parameters for layer in found.layers)
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    assert not model[0]._forward_hooks and model[0].weight.grad is None


def test_costs_of_layers_for_a_run_that_is_charged():
    costs = profile(nn.Sequential(nn.Linear(4, 5, bias=False), nn.ReLU()), (4,), 2).layer_costs()
    # forward reads 2x4 and 4x5 floats and writes 2x5; the weight's gradient is 5x4 from 2x5 and 2x4
    assert costs["0"].forward == Cost(2 * 40, 4 * (8 + 20 + 10))
    assert costs["0"].backward == Cost(2 * 40, 4 * (10 + 8 + 20))
    assert costs["1"].forward.flops == 0 < costs["1"].forward.bytes


class AddsItsInput(nn.Module):
    def __init__(self):
        super().__init__()
        self.inside = nn.Conv2d(4, 4, 1, bias=False)

    def forward(self, x):
        return self.inside(x) + x


def test_what_a_block_does_between_its_layers_is_booked_on_the_block():
    # An addition keeps nothing and multiplies nothing, so the block was left out, and with it what it moves.
    block, inside = profile(AddsItsInput(), (4, 5, 5), 2).layers
    assert (block.name, block.macs, block.saved_bytes) == ("", 0, 0)
    assert block.moved_bytes == 3 * 4 * 2 * 4 * 25
    assert inside.moved_bytes == 4 * (2 * 2 * 4 * 25 + 16)


class TestBadInput:
    class Spectrum(nn.Module):
        def forward(self, x):
            return torch.fft.rfft2(x).real

    class Looks(nn.Module):
        def forward(self, x):
            return x * 2 if x.sum().item() > 0 else x

    class ByNumpy(nn.Module):
        def forward(self, x):
            return torch.from_numpy(np.tanh(x.detach().numpy()))

    @pytest.mark.parametrize(
        ("layer", "words"),
        [
            (Spectrum(), r"layer '1' \(Spectrum\) calls the operation aten\._?fft.* not known"),
            (Looks(), r"layer '1' \(Looks\) cannot be profiled"),
            (ByNumpy(), r"layer '1' \(ByNumpy\) cannot be profiled"),
            (nn.Bilinear(3, 3, 2), r"layer '1' \(Bilinear\) cannot be profiled"),
            (nn.Linear(5, 2), r"layer '1' \(Linear\) cannot be profiled on an input of shape \(1, 3, 8, 8\): .*8"),
        ],
        ids=["unknown operation", "needs numbers", "numpy", "two inputs", "shapes"],
    )
    def test_a_layer_that_cannot_be_accounted_for_is_named(self, layer, words):
        with pytest.raises(ValueError, match=words):
            profile(nn.Sequential(nn.Conv2d(3, 3, 1), layer), (3, 8, 8))

    def test_a_type_without_gradients(self):
        with pytest.raises(ValueError, match="dtype is torch.int64; gradients need"):
            profile(nn.Linear(2, 2), (2,), dtype=torch.int64)

    @pytest.mark.parametrize(("size", "batch", "words"), [
        ((), 1, "input_size is"), (224, 1, "input_size is 224"), ((3, 0, 4), 1, "input_size is"), ((3, 4.0), 1, "4.0"),
        ((3, 4), 0, "batch is 0"), ((3, 4), True, "batch is True"), ((3, 4), 2.0, "batch is 2.0"),
    ])  # fmt: skip
    def test_sizes_that_are_none(self, size, batch, words):
        with pytest.raises(ValueError, match=words):
            profile(nn.Linear(4, 2), size, batch)
