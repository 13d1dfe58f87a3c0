import math

import pytest

from lockstep.comm import predict_seconds
from lockstep.world import fit_collective, launch, time_collectives


@pytest.mark.parametrize(
    ("algorithm", "p"),
    [("ring_all_reduce", 2), ("ring_all_reduce", 5), ("tree_broadcast", 6), ("rabenseifner_all_reduce", 6)],
)
def test_what_was_predicted_is_fitted_back(algorithm, p):
    sizes = [4**k for k in range(1, 14)]
    points = [(n, predict_seconds(algorithm, n, p, 3e-5, 2e9)) for n in sizes]
    latency, bandwidth, error = fit_collective(algorithm, p, points)
    assert latency == pytest.approx(3e-5, rel=1e-6)
    assert bandwidth == pytest.approx(2e9, rel=1e-6)
    assert error < 1e-6


def test_what_cannot_be_fitted_is_a_sentence():
    with pytest.raises(ValueError, match="One rank sends no message"):
        fit_collective("ring_all_reduce", 1, [(4, 1.0), (8, 2.0)])
    with pytest.raises(ValueError, match="algorithm is 'ring'"):
        fit_collective("ring", 2, [(4, 1.0), (8, 2.0)])
    with pytest.raises(ValueError, match="at least two message sizes"):
        fit_collective("ring_all_reduce", 2, [(4, 1.0)])
    with pytest.raises(ValueError, match="float32 elements fill, not 5"):
        time_collectives(None, {}, [5])


def test_ranks_agree_on_how_often_to_time():
    def program(comm):
        called = []
        calls = {"first": lambda x: called.append(x.nbytes), "second": comm.all_reduce}
        # Story: the limit is a whole number, what lies below it is not, and ranks broadcast different dtypes.
        return time_collectives(comm, calls, (4, 4096), budget=0.0 if comm.rank else 9.0), called

    (points, called), (_, also_called) = launch(program, 2).values
    assert called == also_called and set(called) == {4, 4096} and len(called) >= 2 * (1 + 3)
    assert [size for size, _ in points["second"]] == [4, 4096]
    assert all(0 < seconds < math.inf for _, seconds in points["second"])
