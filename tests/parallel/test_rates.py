"""Learning rates of large batches, by hand-computed numbers."""

import math

import pytest

from lockstep.parallel import linear_lr, scaled_lr, square_root_lr


def test_rules():
    assert linear_lr(0.1, 256, 8192) == pytest.approx(3.2)  # ResNet-50 of Goyal et al. 2017
    assert square_root_lr(0.1, 256, 1024) == pytest.approx(0.2)
    assert linear_lr(0.1, 256, 256) == square_root_lr(0.1, 256, 256) == 0.1


def test_warm_up_grows_in_equal_increments_every_step_from_the_base_rate_to_the_scaled_one():
    rates = [scaled_lr(step, 0.1, 256, 8192, warmup_steps=100) for step in range(130)]
    assert rates[0] == 0.1 and rates[50] == pytest.approx((0.1 + 3.2) / 2) and set(rates[100:]) == {3.2}
    assert all(b - a == pytest.approx(3.1 / 100) for a, b in zip(rates[:100], rates[1:101], strict=True))
    assert scaled_lr(0, 0.1, 256, 8192, warmup_steps=0) == 3.2
    assert scaled_lr(7, 0.1, 32, 512, 5, rule=square_root_lr) == pytest.approx(0.4)
    assert scaled_lr(5, 0.1, 64, 32, 10) == pytest.approx(0.075)  # a smaller batch comes down


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((-1, 0.1, 32, 64, 5), "step must be a whole number of at least 0, not -1"),
        ((0, 0.1, 32, 64, 2.5), "warmup_steps must be a whole number of at least 0, not 2.5"),
        ((0, 0, 32, 64, 5), "base_lr must be a number above 0, not 0"),
        ((0, 0.1, 0, 64, 5), "base_batch must be a number above 0, not 0"),
        ((0, 0.1, 32, math.inf, 5), "batch must be a number above 0, not inf"),
    ],
)
def test_numbers_that_make_no_sense(arguments, says):
    with pytest.raises(ValueError, match=says):
        scaled_lr(*arguments)
