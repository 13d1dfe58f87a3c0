import json
import random
import sys
import time

import pytest

from lockstep.hardware import Device, Link
from lockstep.world import calibrate
from lockstep.world.calibrate import (
    KEPT_WITHIN,
    REFERENCE_STEP,
    SIZES,
    Calibration,
    calibration_file,
    fit_link,
    this_machine,
)


def points(latency, bandwidth, noise=0.0, seed=0):
    rng = random.Random(seed)
    return [(n, (latency + n / bandwidth) * (1 + noise * rng.uniform(-1, 1))) for n in SIZES]


def example(**changes):
    facts = {
        "link": Link(1e-4, 2e9, "test"),
        "device": Device("one thread", {"float32": 5e10}, 1e10, 2**33, "test"),
        "convolution": 4e10,
        "training_step": 2 * REFERENCE_STEP,
        "points": ((8, 1e-4), (4_194_304, 2.2e-3)),
        "residual": 0.04,
        "seconds": 1.5,
        "machine": this_machine(),
    }
    return Calibration(**facts | changes)


class TestFit:
    @pytest.mark.parametrize(("latency", "bandwidth"), [(1e-4, 2e9), (2e-6, 25e9), (5e-3, 1e7), (0.0, 1e9)])
    def test_exact_points_give_the_line_back(self, latency, bandwidth):
        found = fit_link(points(latency, bandwidth))
        assert found[0] == pytest.approx(latency, rel=1e-6, abs=1e-12)
        assert found[1] == pytest.approx(bandwidth, rel=1e-6)
        assert found[2] < 1e-6

    def test_noise_of_ten_percent_moves_it_by_less_than_that(self):
        for seed in range(20):
            latency, bandwidth, residual = fit_link(points(1e-4, 2e9, 0.1, seed))
            assert latency == pytest.approx(1e-4, rel=0.1)
            assert bandwidth == pytest.approx(2e9, rel=0.1)
            assert residual < 0.1

    @pytest.mark.parametrize("spoiled", range(len(SIZES)))
    def test_one_slow_message_does_not_bend_the_line(self, spoiled):
        # another program ran while one size was measured: plain least squares is off by up to 300 %
        given = points(1e-4, 2e9, 0.01)
        given[spoiled] = (given[spoiled][0], given[spoiled][1] * 8)
        latency, bandwidth, _ = fit_link(given)
        assert latency == pytest.approx(1e-4, rel=0.1)
        assert bandwidth == pytest.approx(2e9, rel=0.1)

    def test_a_negative_latency_is_not_believed(self):
        latency, bandwidth, _ = fit_link([(1000, 1e-6), (2000, 3e-6), (4000, 8e-6)])
        assert latency == 0.0
        assert bandwidth > 0

    @pytest.mark.parametrize("given", [[], [(8, 1e-4)], [(8, 1e-4), (8, 2e-4)], [(8, 0.0), (16, 1.0)]])
    def test_too_little_to_fit_is_a_sentence(self, given):
        with pytest.raises(ValueError, match="at least two message sizes"):
            fit_link(given)

    def test_a_line_that_falls_is_refused(self):
        with pytest.raises(ValueError, match="Larger messages were not slower"):
            fit_link([(8, 2e-4), (100_000, 1e-4), (200_000, 0.5e-4)])


class TestKeeping:
    def test_save_and_load(self, tmp_path):
        path = example().save(tmp_path / "deep" / "here.json")
        assert Calibration.load(path) == example()
        assert json.loads(path.read_text())["residual"] == 0.04

    def test_a_damaged_file_is_a_sentence(self, tmp_path):
        for text in ("{", "[]", '{"link": {}}', json.dumps({"link": None})):
            (tmp_path / "c.json").write_text(text)
            with pytest.raises(ValueError, match=r"c\.json holds no calibration .* calibrate\(fresh=True\)"):
                Calibration.load(tmp_path / "c.json")

    def test_the_result_is_kept_per_machine(self, tmp_path, monkeypatch):
        path = tmp_path / "c.json"
        example().save(path)
        assert calibrate(path=path) == example()  # no measuring

        def measured(*_, **__):
            raise RuntimeError("measures")

        monkeypatch.setattr(sys.modules[calibrate.__module__], "launch", measured)
        for stale in (lambda: example(machine="another").save(path), lambda: path.write_text("{"), path.unlink):
            stale()
            with pytest.raises(RuntimeError, match="measures"):
                calibrate(path=path)
        example().save(path)
        with pytest.raises(RuntimeError, match="measures"):
            calibrate(path=path, fresh=True)

    def test_it_is_kept_in_the_users_cache(self, tmp_path, monkeypatch):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        assert example().save() == calibration_file() == tmp_path / "lockstep" / "calibration.json"


def test_scale_by_hand():
    # a step takes twice as long here as on the reference machine
    assert example().scale(12.0) == pytest.approx(24.0)
    assert example().gamma == pytest.approx(3e-10)


@pytest.mark.stalls
def test_this_machine_for_real(tmp_path):
    begun = time.perf_counter()
    found = calibrate(path=tmp_path / "c.json")
    assert time.perf_counter() - begun < 60  # 2 s on a quiet machine
    assert 1e-7 < found.link.latency < 0.1
    assert 1e6 < found.link.bandwidth < 1e12
    assert 1e8 < found.device.rate() < 1e13
    assert 1e8 < found.convolution < 1e13
    assert 1e8 < found.device.memory_bandwidth < 1e12
    assert [size for size, _ in found.points] == list(SIZES)
    if found.residual <= KEPT_WITHIN:
        assert Calibration.load(tmp_path / "c.json") == found
    assert "a message takes" in repr(found)
