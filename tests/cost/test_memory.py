"""Memory by part, batches that fit, checkpointing, traffic and limits: against closed forms, and against real steps."""

import math

import pytest
import torch
from torch import nn

from lockstep.cost import (
    accumulation_sizes,
    best_checkpointing,
    checkpointing,
    data_parallel_bytes,
    largest_batch,
    layer_split_bytes,
    measure_step,
    memory_by_batch,
    parameter_server_bytes,
    profile,
    profile_stages,
    step_time,
    tensor_parallel_bytes,
    training_memory,
    zero_traffic,
)
from lockstep.hardware import GIB, Device, Link, device, link
from lockstep.nn.models import alexnet

TOY = Device("toy", {"float32": 100.0}, memory_bandwidth=10.0, memory=1, source="made up for this test")


@pytest.fixture(scope="module")
def small():
    """Two layers, 58 parameters, with batch norm's buffers and a pool's indices."""
    model = nn.Sequential(nn.Conv2d(2, 4, 1), nn.BatchNorm2d(4), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(4, 10))
    return model, profile(model, (2, 2, 2), 3)


class TestTrainingMemory:
    @pytest.mark.parametrize(("optimizer", "fp32", "mixed"), [
        ("sgd", 8, 8), ("momentum", 12, 12), ("adam", 16, 16), ("adamw", 16, 16),
    ])  # fmt: skip
    def test_bytes_per_parameter(self, small, optimizer, fp32, mixed):
        # Rajbhandari et al. 2020, section 3.1: 2 + 2 + 12 bytes for Adam in mixed precision; as many as in fp32.
        _, found = small
        for precision, each in (("fp32", fp32), ("mixed", mixed)):
            parts = training_memory(found, optimizer, precision)
            state = parts.parameters + parts.gradients + parts.master_weights + parts.optimizer_state
            assert state - found.buffer_bytes == each * found.parameters
            assert parts.total == sum(parts.parts.values()) == state + parts.activations + parts.workspace

    def test_parts_are_those_of_a_real_step(self, small):
        model, found = small
        parts = training_memory(found, "adam")
        real = measure_step(model, torch.rand(3, 2, 2, 2), torch.arange(3), "adam")
        assert (parts.parameters, parts.gradients) == (real.parameters, real.gradients)
        # torch counts Adam's steps in 4 bytes for each of the 6 parameter tensors
        assert parts.optimizer_state + 6 * 4 == real.optimizer_state

    def test_mixed_precision_halves_floats_and_leaves_indices(self, small):
        _, found = small
        indices = 8 * 3 * 4
        assert training_memory(found, "sgd", "mixed").activations == (found.saved_bytes - indices) // 2 + indices

    def test_bad_names(self, small):
        _, found = small
        with pytest.raises(ValueError, match="optimizer is 'rmsprop'; known are"):
            training_memory(found, "rmsprop")
        with pytest.raises(ValueError, match="precision is 'fp8'; known are"):
            training_memory(found, "sgd", "fp8")
        with pytest.raises(ValueError, match="float64; make it in float32"):
            training_memory(profile(nn.Linear(2, 2), (2,), dtype=torch.float64))


class TestLargestBatch:
    def test_one_more_would_not_fit(self):
        model, size = alexnet(10, 32), (3, 32, 32)
        for precision in ("fp32", "mixed"):
            fits = largest_batch(model, size, GIB, "momentum", precision)
            totals = [training_memory(profile(model, size, n), "momentum", precision).total for n in (fits, fits + 1)]
            assert totals[0] <= GIB < totals[1]

    def test_every_part_grows_evenly(self):
        model = nn.Sequential(nn.Conv2d(2, 4, 1), nn.BatchNorm2d(4), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(4, 10))
        two, four, nine = (profile(model, (2, 2, 2), n) for n in (2, 4, 9))
        assert memory_by_batch(two, four, "adam", "mixed")(9) == training_memory(nine, "adam", "mixed")
        with pytest.raises(ValueError, match="the second of a larger batch"):
            memory_by_batch(four, two)

    def test_nothing_fits(self):
        with pytest.raises(ValueError, match="not even one input fits: .* do not depend on the batch"):
            largest_batch(alexnet(10, 32), (3, 32, 32), 10_000_000)
        with pytest.raises(ValueError, match="does any parameter need a gradient"):
            largest_batch(nn.Linear(2, 2).requires_grad_(False), (2,), 1000)

    def test_accumulation_covers_the_batch_in_the_fewest_equal_parts(self):
        assert accumulation_sizes(100, 32) == [25, 25, 25, 25]
        assert accumulation_sizes(10, 4) == [4, 3, 3]
        assert accumulation_sizes(5, 8) == [5]
        with pytest.raises(ValueError, match="at least 1"):
            accumulation_sizes(5, 0)


class TestCheckpointing:
    def chain(self, n):
        return profile_stages([nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.ReLU()) for _ in range(n)], (4, 8, 8), 2)

    def test_the_best_segment_is_near_the_root(self):
        # Chen et al. 2016: sqrt(n) segments when what a stage keeps is as large as its input. Here it keeps two.
        stages = self.chain(32)
        size = 4 * 2 * 4 * 64
        assert stages[0].saved_bytes == 2 * size
        best = best_checkpointing(stages)
        assert best.every == 4 == math.isqrt(32 // 2)
        assert best.saved_bytes == (8 - 1) * size + 4 * 2 * size
        assert best.extra_macs == 28 * stages[0].macs
        assert checkpointing(stages, 32).extra_macs == 0

    def test_stages_are_chained(self):
        stages = profile_stages([nn.Conv2d(3, 5, 3), nn.Flatten(), nn.Linear(180, 7)], (3, 8, 8), 2)
        assert [stage.output_shape for stage in stages] == [(2, 5, 6, 6), (2, 180), (2, 7)]

    @pytest.mark.parametrize("every", [0, 4])
    def test_segments_that_cannot_be(self, every):
        with pytest.raises(ValueError, match="it must be 1 to 3"):
            checkpointing(self.chain(3), every)
        with pytest.raises(ValueError, match="no stages"):
            best_checkpointing([])


class TestTraffic:
    def test_closed_forms(self, small):
        _, found = small
        gradient = 4 * found.parameters
        assert data_parallel_bytes(found, 4) == pytest.approx(1.5 * gradient)
        assert data_parallel_bytes(found, 1) == 0
        assert parameter_server_bytes(found, 4) == 3 * gradient
        assert [zero_traffic(found, 4, stage) / gradient for stage in (1, 2, 3)] == pytest.approx([1.5, 1.5, 2.25])
        assert layer_split_bytes(found, "0") == 4 * 3 * 4 * 4
        assert tensor_parallel_bytes(found, 2, "0") == 2 * layer_split_bytes(found, "0")

    def test_what_does_not_exist(self, small):
        _, found = small
        with pytest.raises(ValueError, match="no layer '9'; there are 0, 1"):
            layer_split_bytes(found, "9")
        with pytest.raises(ValueError, match="ranks is 0"):
            data_parallel_bytes(found, 0)
        with pytest.raises(ValueError, match="stage is 4"):
            zero_traffic(found, 2, 4)


class TestLimits:
    def test_each_of_the_three_can_be_the_limit(self):
        found = profile(nn.Linear(4, 5, bias=False), (4,), 2)  # 40 multiply-adds each way, 304 bytes in all
        lower = step_time(found, TOY)
        assert (lower.computation, lower.memory, lower.network) == (1.6, found.moved_bytes / 10, 0)
        assert lower.limit == "memory" and lower.seconds == lower.memory
        assert step_time(found, Device("slow", {"float32": 1.0}, 10.0, 1, "made up")).limit == "computation"
        assert step_time(found, TOY, network_bytes=1000, link=Link(0, 1.0)).limit == "network"

    def test_resnet50_on_an_a100(self):
        # 32 images: 2 * (4.09 + 8.06) GMAC each at 19.5 TFLOP/s
        with torch.device("meta"):
            from torchvision.models import resnet50

            found = profile(resnet50(), (3, 224, 224), 32)
        lower = step_time(found, device("A100"), network_bytes=data_parallel_bytes(found, 8), link=link("HDR"))
        assert lower.computation == pytest.approx(found.flops / 19.5e12)
        assert lower.network == pytest.approx(1.75 * 4 * 25_557_032 / 25e9)
        assert lower.limit == "computation"

    def test_bytes_need_a_link(self, small):
        with pytest.raises(ValueError, match="5 bytes need a link"):
            step_time(small[1], TOY, network_bytes=5)


def test_stages_together_count_what_the_whole_counts():
    # Story: every stage was profiled as if its input were images, so backward of all but the first was half too cheap.
    layers = [nn.Conv2d(3, 5, 3), nn.ReLU(), nn.Conv2d(5, 4, 3, groups=1), nn.Flatten(), nn.Linear(64, 7)]
    whole = profile(nn.Sequential(*layers), (3, 8, 8), 2)
    parts = profile_stages(layers, (3, 8, 8), 2)
    assert sum(part.macs for part in parts) == whole.macs
    assert sum(part.backward_macs for part in parts) == whole.backward_macs
