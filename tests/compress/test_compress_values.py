"""What one rank sends of a tensor: expectations, variances, least errors, packing, and gradients that hurt."""

import math
from fractions import Fraction

import pytest
import torch

from lockstep.compress import (
    DGC,
    QSGD,
    CompressedSensing,
    ErrorFeedback,
    Int8,
    OneBit,
    PowerSGD,
    RandomK,
    SignVote,
    TernGrad,
    Threshold,
    TopK,
    named,
)
from lockstep.compress.packing import digits_per_byte, pack, packed_bytes, unpack

EVERY = {
    "int8": lambda: Int8(block=16),
    "qsgd": lambda: QSGD(levels=2, block=16),
    "terngrad": TernGrad,
    "one_bit": OneBit,
    "vote": SignVote,
    "top_k": lambda: TopK(0.1),
    "random_k": lambda: RandomK(0.1),
    "threshold": lambda: Threshold(0.5),
    "dgc": lambda: DGC(0.1),
    "power": lambda: PowerSGD(1),
    "sensing": lambda: CompressedSensing(0.3, iterations=5),
}
every = pytest.mark.parametrize("make", EVERY.values(), ids=EVERY)


def sent(compressor, tensor):
    return compressor.decompress(compressor.compress(tensor))


# Expectation and variance


def norm2(x):
    return x.square().sum().item()


@pytest.mark.parametrize(
    ("make", "variance"),
    [
        # A value between two steps of s has at most s^2/4; a block of d values d times that.
        (lambda: Int8(block=50), lambda g: sum(50 / 4 * (b.abs().max().item() / 127) ** 2 for b in g.split(50))),
        # Alistarh et al. 2017, lemma 3.1, block by block.
        *(
            (
                lambda s=s: QSGD(levels=s, block=50),
                lambda g, s=s: sum(min(50 / s**2, math.sqrt(50) / s) * norm2(b) for b in g.split(50)),
            )
            for s in (1, 4, 7, 127)
        ),
        # E(s*|g|) - |g|^2 of each, which is exact.
        (TernGrad, lambda g: g.abs().max().item() * g.abs().sum().item() - norm2(g)),
        # A value is there with probability k/n, n/k times as large: exact where k divides n.
        (lambda: RandomK(0.1, unbiased=True), lambda g: 9 * norm2(g)),
    ],
    ids=["int8", "qsgd1", "qsgd4", "qsgd7", "qsgd127", "terngrad", "random_k"],
)
def test_the_expectation_is_the_gradient_and_the_variance_within_its_bound(make, variance):
    # By Monte Carlo with a fixed seed: N = 4000 draws, side by side in one tensor, since scales belong to blocks of 50.
    # The mean of N draws misses by |mean - g|^2 = variance/N on average over 200 values, a chi-square whose chance to
    # be twice that is below 1e-6 (and below 1e-3 were only 30 of them to vary); the bound has 10 % to spare.
    torch.manual_seed(5)
    g, draws = torch.randn(200, dtype=torch.float64), 4000
    samples = sent(make(), g.repeat(draws)).view(draws, 200)
    measured = (samples - g).square().sum(1).mean().item()
    assert norm2(samples.mean(0) - g) <= 2 * measured / draws
    assert measured <= 1.1 * variance(g)


def test_rounding_to_the_nearest_would_be_biased_and_is_not_what_happens():
    torch.manual_seed(0)
    g = torch.full((1000,), 0.3)
    g[0] = 127.0  # the step is 1, and 0.3 would always become 0
    assert sent(Int8(block=1000), g)[1:].mean().item() == pytest.approx(0.3, abs=0.08)  # 5 standard errors


# What each sends


def test_one_bit_sends_the_two_means_of_each_column_and_so_keeps_its_sum():
    g = torch.tensor([[1.0, 3.0, -2.0, -4.0], [5.0, 5.0, 0.0, -1.0]])
    want = torch.tensor([[2.0, 2.0, -3.0, -3.0], [10 / 3, 10 / 3, 10 / 3, -1.0]])
    assert torch.allclose(sent(OneBit(), g), want)
    torch.manual_seed(0)
    h = torch.randn(5, 3, 7, 3, dtype=torch.float64)
    assert torch.allclose(sent(OneBit(), h).sum((1, 2, 3)), h.sum((1, 2, 3)), atol=1e-12)


def test_the_sparse_ones_send_the_values_they_should():
    torch.manual_seed(1)
    g = torch.randn(8, 25)
    flat = g.flatten().tolist()
    largest = sorted(range(200), key=lambda i: -abs(flat[i]))[:20]
    got = sent(TopK(0.1), g).flatten().tolist()
    assert [i for i in range(200) if got[i]] == sorted(largest)
    assert all(got[i] == flat[i] for i in largest)
    assert torch.equal(sent(Threshold(0.5), g), g * (g.abs() >= 0.5))
    assert torch.equal(sent(Threshold(0.0), g), g)
    random = RandomK(0.1)
    first, second = sent(random, g), sent(random, g)
    for got in (first, second):
        assert got.count_nonzero() == 20 and torch.equal(got[got != 0], g[got != 0])
    assert not torch.equal(first, second), "the places are drawn anew at each step"
    assert torch.equal(first, sent(RandomK(0.1), g)), "equal seeds draw equal places"


def test_the_largest_of_a_large_tensor_are_found_whatever_a_sample_of_it_says():
    # Every 24th value is sampled: here it says what is true, nothing, or the contrary.
    torch.manual_seed(7)
    normal, n = torch.randn(100_000), 100_000
    hidden, shown, few = (normal.abs() + 10).where(torch.arange(n) % 24 != 0, 0.5), torch.zeros(n), torch.zeros(n)
    shown[::24], few[500] = normal[::24], -3.0
    for g in (normal, normal.sort().values, hidden, shown, few, torch.zeros(n), torch.ones(n)):
        for fraction in (0.001, 0.01, 0.125):
            got = sent(TopK(fraction), g)
            kept = got[got != 0].abs()
            want = g.abs().topk(round(fraction * n)).values
            assert torch.equal(kept.sort(descending=True).values, want[want > 0])
            assert ((got == 0) | (got == g)).all()


def test_a_matrix_of_rank_r_comes_back_whole_from_power_iteration():
    torch.manual_seed(2)
    g = (torch.randn(20, 2, dtype=torch.float64) @ torch.randn(2, 30, dtype=torch.float64)).view(20, 6, 5)
    assert torch.allclose(sent(PowerSGD(2), g), g, atol=1e-10)
    assert not torch.allclose(sent(PowerSGD(1), g), g, atol=0.1)
    method, full = PowerSGD(2), torch.randn(20, 30, dtype=torch.float64)
    for _ in range(200):  # warm start: the same matrix again and again is a power iteration
        got = sent(method, full)
    u, s, v = torch.linalg.svd(full)
    assert torch.allclose(got, u[:, :2] * s[:2] @ v[:2], atol=1e-3)
    assert torch.equal(sent(method, full[:3, :3]), full[:3, :3]), "what would not shrink is sent as it is"


def test_power_iteration_survives_matrices_that_lack_rank_and_comes_back_from_nothing():
    # torch's hook divides by the length of a zero column, and gets NaN.
    torch.manual_seed(3)
    method = PowerSGD(3)
    for g in (torch.zeros(20, 30), torch.randn(20, 1) @ torch.randn(1, 30), torch.zeros(20, 30)):
        assert torch.allclose(sent(method, g), g, atol=1e-5)
    g = torch.randn(20, 3) @ torch.randn(3, 30) * 1e-12  # whose squares are zero in float32
    assert torch.allclose(sent(method, g), g, rtol=1e-3, atol=1e-16)


def test_compressed_sensing_recovers_a_sparse_gradient_and_fails_on_a_dense_one():
    # m = C k ln(n/k) suffices, here with C = 3.5; a dense gradient is not k-sparse.
    torch.manual_seed(4)
    method = CompressedSensing(0.2)
    sparse = torch.zeros(3000, dtype=torch.float64)
    sparse[torch.randperm(3000)[:40]] = torch.randn(40, dtype=torch.float64)
    payload = method.compress(sparse)
    assert payload.wire.numel() == 600
    assert torch.allclose(method.decompress(payload), sparse, atol=1e-6)
    dense = torch.randn(3000, dtype=torch.float64)
    assert norm2(sent(method, dense) - dense) > 0.5 * norm2(dense)


def test_dgc_corrects_momentum_masks_what_was_sent_and_warms_up():
    g = torch.tensor([1.0, 10.0, 0.1, 0.2])
    dgc = DGC(0.25, momentum=0.5)
    first, second, third = (sent(dgc, g) for _ in range(3))
    assert first.tolist() == [0, 10, 0, 0]
    # Velocity and residual of what was sent began anew: again 10, not 10 + 5.
    assert second.tolist() == [0, 10, 0, 0]
    # What waits has velocities 1, 1.5, 1.75 and is their sum, as momentum would have added it up.
    assert third.tolist() == [0, 10, 0, 0]
    assert dgc.residuals[""].tolist() == pytest.approx([4.25, 0, 0.425, 0.85])
    assert [DGC(0.001, warm_up=8).fraction_at(step) for step in (0, 1, 2, 4, 7, 8)] == [
        0.25,
        0.25,
        0.0625,
        0.015625,
        0.004,
        0.001,
    ]
    clipped = DGC(1.0, momentum=0, clip=2.0)
    assert torch.linalg.vector_norm(sent(clipped, g)).item() == pytest.approx(2.0)


# Feedback


@every
def test_the_sum_of_what_was_sent_and_the_last_residual_is_the_sum_of_gradients(make):
    torch.manual_seed(6)
    inner = make()
    method = inner if isinstance(inner, DGC) else ErrorFeedback(inner)
    if isinstance(inner, DGC):
        method.momentum = 0.0
    total, arrived = torch.zeros(6, 40, dtype=torch.float64), torch.zeros(6, 40, dtype=torch.float64)
    for _ in range(12):
        g = torch.randn(6, 40, dtype=torch.float64)
        total += g
        arrived += sent(method, g)
    residual = method.residuals[""].view(6, 40)
    assert (arrived + residual - total).abs().max().item() <= 1e-12 * max(1, residual.abs().max().item())


def test_feedback_refuses_what_it_would_blow_up_and_a_residual_of_another_shape():
    for inner in (RandomK(0.01, unbiased=True), DGC(), ErrorFeedback(TopK())):
        with pytest.raises(ValueError, match="feedback|already"):
            ErrorFeedback(inner)
    with pytest.raises(TypeError, match="give one of lockstep.compress"):
        ErrorFeedback("topk")
    method = ErrorFeedback(TopK(0.5))
    method.compress(torch.ones(3), "a")
    method.compress(torch.ones(4), "b")
    with pytest.raises(ValueError, match=r"a has shape \(4,\)"):
        method.compress(torch.ones(4), "a")


# Packing and bytes


@pytest.mark.parametrize("base", [2, 3, 4, 5, 6, 7, 15, 16, 17, 255, 256])
def test_packing_gives_every_digit_back_in_the_fewest_whole_bytes(base):
    torch.manual_seed(0)
    digits = digits_per_byte(base)
    assert base**digits <= 256 < base ** (digits + 1)
    for n in (0, 1, digits, digits + 1, 8 * digits + 3):
        values = torch.randint(base, (n,), dtype=torch.uint8 if base < 256 else torch.int64)
        packed = pack(values, base)
        assert packed.dtype is torch.uint8 and packed.numel() == math.ceil(Fraction(n, digits)) == packed_bytes(n, base)
        assert torch.equal(unpack(packed, n, base), values.to(torch.uint8))


@pytest.mark.parametrize(
    ("compressor", "shape", "payload"),
    [
        (Int8(block=256), (1000,), 1000 + 4 * 4),
        (QSGD(levels=7, block=512), (1000,), 500 + 2 * 4),
        (QSGD(levels=1, block=512), (1000,), 200 + 2 * 4),
        (TernGrad(), (1000,), 200 + 4),
        (OneBit(), (10, 100), 125 + 2 * 10 * 4),
        (OneBit(), (1000,), 125 + 2 * 4),
        (SignVote(), (10, 100), 125 + 4),
        (TopK(0.01), (10, 100), 10 * 8),
        (RandomK(0.01), (10, 100), 10 * 4),
        (DGC(0.001), (10, 100), 1 * 8),
        (PowerSGD(2), (10, 100), 110 * 2 * 4),
        (PowerSGD(2), (100,), 100 * 4),
        (CompressedSensing(0.1), (10, 100), 100 * 4),
    ],
    ids=repr,
)
def test_a_payload_has_the_bytes_of_its_closed_form(compressor, shape, payload):
    assert compressor.compress(torch.randn(shape)).nbytes == payload
    ring, gather = 2 * (4 - 1) * payload, 4 * (4 - 1) * payload
    assert compressor.wire_bytes(shape, 4) in (ring, gather)


def test_top_k_of_a_hundredth_over_128_ranks_sends_more_than_a_dense_ring():
    n = 10**6
    dense = 2 * (128 - 1) * n * 4
    assert TopK(0.01).wire_bytes((n,), 128) / dense == pytest.approx(1.28)
    assert RandomK(0.01).wire_bytes((n,), 128) / dense == pytest.approx(0.01)
    assert Threshold(1.0).wire_bytes((n,), 2, kept=[3, 5]) == 8 * 8 + 2 * 4


def test_power_sgd_has_the_ratios_of_its_paper_on_resnet_18():
    # Vogels et al. 2019, table 3: 1,023 MB of gradients an epoch become 1/243 at rank 1 and 1/136 at rank 2.
    # The shapes of ResNet-18 for CIFAR-10: 11,173,962 parameters.
    shapes = [(64, 3, 3, 3), *[(64, 64, 3, 3)] * 4]
    for narrow, wide in ((64, 128), (128, 256), (256, 512)):
        shapes += [(wide, narrow, 3, 3), *[(wide, wide, 3, 3)] * 3, (wide, narrow, 1, 1)]
    vectors = 2 * (64 * 5 + (128 + 256 + 512) * 5) + 10
    shapes.append((10, 512))
    total = sum(math.prod(shape) for shape in shapes) + vectors
    assert total == 11_173_962
    for rank, ratio in ((1, 243.26), (2, 135.84)):
        method = PowerSGD(rank)
        after = sum(method.payload_elements(shape) for shape in shapes) + method.payload_elements((vectors,))
        assert total / after == pytest.approx(ratio, abs=0.005)


# Gradients that hurt


@every
def test_nan_and_infinity_are_reported_by_name_and_how_many(make):
    for bad, words in ((math.nan, "1 NaN and 0 inf"), (math.inf, "0 NaN and 1 inf"), (-math.inf, "0 NaN and 1 inf")):
        g = torch.randn(4, 5)
        g[1, 2] = bad
        with pytest.raises(FloatingPointError, match=f"the gradient of conv.weight has {words}.* among 20"):
            make().compress(g, "conv.weight")
    with pytest.raises(TypeError, match="int64"):
        make().compress(torch.arange(3))


@every
def test_zero_empty_tiny_and_huge_tensors_are_right(make):
    method = make()
    for at, shape in enumerate([(), (1,), (3,), (2, 3), (0,), (0, 4), (5, 40)]):
        payload = method.compress(torch.zeros(shape), f"zero {at}")
        assert torch.equal(method.decompress(payload), torch.zeros(shape))
    constant = method.decompress(method.compress(torch.full((1,), 2.5), "one value"))
    assert constant.item() == pytest.approx(2.5, rel=1e-6), "one value alone is sent whole"
    for size in (1e-30, 1e30):
        assert method.decompress(method.compress(torch.randn(5, 40) * size, f"size {size}")).isfinite().all()
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        got = method.decompress(method.compress(torch.ones(3, 30, dtype=dtype), str(dtype)))
        assert got.dtype is dtype and got.shape == (3, 30)


@pytest.mark.parametrize("fraction", [0, -0.1, 1.5, "0.1", True, math.nan])
def test_a_fraction_that_keeps_nothing_or_more_than_there_is_says_so(fraction):
    for make in (TopK, RandomK, DGC, CompressedSensing):
        with pytest.raises(ValueError, match="above 0 and at most 1"):
            make(fraction)


def test_other_settings_that_make_no_sense_say_so():
    for make, words in (
        (lambda: Int8(block=0), "block is 0"),
        (lambda: QSGD(levels=200), "levels is 200"),
        (lambda: TernGrad(clip=0), "clip is 0"),
        (lambda: PowerSGD(0), "rank is 0"),
        (lambda: PowerSGD(1, seed=None), "seed is None"),
        (lambda: DGC(0.1, momentum=1), "momentum is 1"),
        (lambda: Threshold(-1), "least is -1"),
        (lambda: CompressedSensing(0.1, iterations=0), "iterations is 0"),
    ):
        with pytest.raises(ValueError, match=words):
            make()


def test_a_text_names_a_compressor_or_is_told_what_would():
    for text, wanted in (
        ("topk:0.01", TopK(0.01)),
        ("int8", Int8()),
        ("qsgd:1", QSGD(levels=1)),
        ("powersgd: 4", PowerSGD(4)),
        ("threshold:0.5", Threshold(0.5)),
        ("sign", SignVote()),
    ):
        assert repr(named(text)) == repr(wanted)
    assert repr(named("onebit", feedback=True)) == "ErrorFeedback(OneBit())"
    for text, words in (
        ("zip", "there is no compressor 'zip'; there are int8, "),
        ("sign:3", "takes no number, and is followed by '3'"),
        ("powersgd:two", "rank is a number, such as powersgd:2"),
        ("powersgd:0", "rank is 0"),
        ("threshold", "such as threshold:0.001"),
    ):
        with pytest.raises(ValueError, match=words):
            named(text)
