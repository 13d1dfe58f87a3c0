"""Plain data and how it compares: nothing of a student's own class arrives, NaN equals nothing."""

import numpy as np
import pytest
import torch

from lockstep.exercises.compare import alike, differs
from lockstep.exercises.plain import Strange, plain, short


class Same(float):
    def __eq__(self, other):
        return True

    __hash__ = float.__hash__


class Sub(torch.Tensor):
    pass


@pytest.mark.parametrize("value", [Same(3), {1, 2}, object(), Sub(), np.array(["a"]), len, np.array([object()]), range])
def test_what_is_not_plain_becomes_strange(value):
    assert isinstance(plain(value), Strange)


EQUAL = [
    (1, 1), (1.0, 1), (1, 1.0), (np.float32(0.5), 0.5), (torch.tensor(2.5), 2.5), (torch.tensor(3), 3),
    ([1, 2], (1, 2)), ({"a": 1.0}, {"a": 1.0 + 1e-9}), ("x", "x"), (None, None), (True, True), (b"x", b"x"),
    (torch.ones(2, 3), torch.ones(2, 3) + 1e-7), (torch.zeros(0), torch.zeros(0)), (np.arange(3), np.arange(3)),
    (torch.tensor([True]), torch.tensor([True])), (torch.nn.Parameter(torch.ones(1)), torch.ones(1)),
    (torch.ones(2, dtype=torch.bfloat16), torch.ones(2, dtype=torch.bfloat16)), (1j, 1j),
    (float("inf"), float("inf")), (torch.Size([2]), (2,)), (torch.tensor([float("inf")]), torch.tensor([float("inf")])),
]  # fmt: skip


@pytest.mark.parametrize("seen, expected", EQUAL)
def test_equal(seen, expected):
    assert differs(plain(seen), plain(expected)) is None
    assert alike(plain(seen), plain(expected))


NAN = float("nan")
DIFFERENT = [
    (True, 1, "expected int 1, got bool True"), (1, True, "expected bool True, got int 1"), (2, 1, "expected 1, got 2"),
    (NAN, 1.0, "got nan"), (NAN, NAN, "got nan"), ([1.0, NAN], [1.0, 2.0], "at [1], got nan"),
    (torch.tensor([NAN]), torch.tensor([NAN]), "got nan"), (None, 1, "got None"), ("1", 1, "got str '1'"),
    (Same(1), 1.0, "an object of type Same"), (torch.ones(2), torch.ones(2, 1), "expected shape [2, 1], got [2]"),
    (torch.ones(2, dtype=torch.float64), torch.ones(2), "expected dtype float32, got float64"),
    (np.ones(2), torch.ones(2), "expected a tensor float32[2], got an array float64[2]"),
    (torch.tensor([1.0, 2.0, 4.0]), torch.tensor([1.0, 2.0, 3.0]), "element [2] expected 3.0, got 4.0 (1 of 3"),
    ([1], [1, 2], "expected 2 values, got 1"), ({"a": 1}, {"b": 1}, "expected the keys"), (10**400, 1.0, "got"),
    ([[1], [2]], [[1], [3]], "at [1][0]"), (torch.ones(1), 1.0, "expected float 1.0, got a tensor float32[1]"),
    (float("inf"), 1.0, "got inf"), (1 + 1e-3, 1.0, "got 1.001"), (1e-3, 0, "got"),
]  # fmt: skip


@pytest.mark.parametrize("seen, expected, said", DIFFERENT)
def test_different(seen, expected, said):
    assert said in (differs(plain(seen), plain(expected)) or "no difference")


def test_alike_is_for_mistakes_so_nan_is_like_nan():
    assert alike([NAN, 1.0], [NAN, 1.0]) and not alike([NAN], [1.0]) and not alike("a", 1) and alike(None, None)
    assert not alike(torch.ones(2), torch.ones(3))


def test_a_list_that_holds_itself_ends():
    own = []
    own += [own, own]
    assert plain(own)


@pytest.mark.parametrize(
    "value", [torch.rand(1000), list(range(1000)), "x" * 5000, {i: i for i in range(500)}, np.eye(50)]
)
def test_short_is_short_and_carries_the_shape(value):
    text = short(plain(value))
    assert len(text) <= 120 and "\n" not in text
    if isinstance(value, torch.Tensor):
        assert text.startswith("float32[1000] [")


def test_a_copy_not_a_view():
    tensor = torch.ones(2, requires_grad=True)
    copied = plain(tensor)
    with torch.no_grad():
        tensor += 1
    assert copied.tolist() == [1, 1] and not copied.requires_grad
    assert isinstance(plain(torch.empty(2, device="meta")), Strange)
    assert plain(torch.eye(2).to_sparse()).tolist() == [[1, 0], [0, 1]]
