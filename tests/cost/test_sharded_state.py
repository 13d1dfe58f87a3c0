"""Bytes of a rank under ZeRO: the paper's table, and sentences for what makes no sense."""

import pytest

from lockstep.cost import zero3_estimate, zero_bytes, zero_memory


def gigabytes(parameters, ranks, stage):
    return sum(zero_memory(parameters, ranks, stage).values()) / 1e9


def test_table_1_of_rajbhandari_2020():
    """GB of 10^9, stages 1, 2 and 3 (Rajbhandari et al. 2020, table 1)."""
    table = {
        7_500_000_000: {4: (52.5, 41.3, 30), 16: (35.6, 21.6, 7.5), 64: (31.4, 16.6, 1.88), 1024: (30.1, 15.1, 0.12)},
        128_000_000_000: {4: (896, 704, 512), 16: (608, 368, 128), 64: (536, 284, 32)},
    }
    for parameters, rows in table.items():
        assert gigabytes(parameters, 16, 0) == pytest.approx(16 * parameters / 1e9)
        for ranks, sizes in rows.items():
            for stage, size in enumerate(sizes, 1):
                assert gigabytes(parameters, ranks, stage) == pytest.approx(size, abs=0.051 if size > 2 else 0.006)
                assert zero_bytes(parameters, ranks, stage) == sum(zero_memory(parameters, ranks, stage).values())


def test_fp32_with_momentum():
    """12, 8 + 4/N, 4 + 8/N and 12/N bytes a parameter; a shard is rounded up."""
    assert [zero_bytes(1000, 8, stage, optimizer_bytes=4) for stage in range(4)] == [8000, 4500, 2750, 1000]
    sizes = [sum(zero_memory(1000, 4, stage, "momentum", "fp32").values()) for stage in range(4)]
    assert sizes == [12_000, 9_000, 6_000, 3_000]
    assert zero_memory(10, 4, 3, "sgd", "fp32") == {"parameters": 12, "gradients": 12, "optimizer": 0}


def test_deepspeeds_estimate():
    """2,851 M parameters, largest layer 32 M, 8 GPUs: 6.09 GiB, 0.78 and 0.12 with offload (DeepSpeed's documentation)."""
    sizes = [
        zero3_estimate(2_851_000_000, 32_000_000, 8, offload) / 2**30 for offload in ("nothing", "optimizer", "all")
    ]
    assert [round(size, 2) for size in sizes] == [6.09, 0.78, 0.12]
    with pytest.raises(ValueError, match="offload is 'disk'"):
        zero3_estimate(10, 1, 2, "disk")
    with pytest.raises(ValueError, match="largest_layer is 0"):
        zero3_estimate(10, 0, 2)


@pytest.mark.parametrize(
    "settings, words",
    [
        ((10, 2, 4), "stage is 4"),
        ((10, 0, 1), "ranks is 0"),
        ((1.5, 2, 1), "parameters is 1.5"),
        ((10, 2, 1, "lion"), "lion"),
        ((10, 2, 1, "adam", "fp8"), "fp8"),
    ],
)
def test_what_makes_no_sense_is_named(settings, words):
    with pytest.raises(ValueError, match=words):
        zero_memory(*settings)


def test_bytes_of_an_optimizer_below_zero():
    with pytest.raises(ValueError, match="optimizer_bytes is -4"):
        zero_bytes(10, 2, 1, -4)
