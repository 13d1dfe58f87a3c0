import hashlib

import numpy as np
import pytest

from lockstep.data.shapes import SHAPES, shapes32


def test_the_same_bytes_on_every_machine_and_with_every_numpy():
    """Pinned, because figures in the labs were measured on exactly these images."""
    images, labels = shapes32(200, 1)
    assert images.shape == (200, 3, 32, 32) and images.dtype == np.uint8
    assert (
        hashlib.sha256(images.tobytes() + labels.tobytes()).hexdigest()
        == "d3be06dd4091e35dbced257e3621638f6580917be37f701b516ef9ff49c9f417"
    )


def test_every_class_equally_often_and_shuffled():
    _, labels = shapes32(500, 3)
    assert np.bincount(labels).tolist() == [50] * len(SHAPES)
    assert len(set(labels[:30].tolist())) > 5


def test_another_seed_draws_other_images():
    assert not np.array_equal(shapes32(100, 1)[0], shapes32(100, 2)[0])


def test_no_image_is_blank_and_no_two_are_equal():
    images, _ = shapes32(1000, 5)
    assert images.reshape(1000, -1).std(axis=1).min() > 2
    assert len({image.tobytes() for image in images}) == 1000


def test_each_shape_covers_a_different_part_of_the_plane():
    v, u = np.mgrid[-1.2:1.2:48j, -1.2:1.2:48j].astype(np.float32)
    masks = {name: shape(u, v) > 0 for name, shape in SHAPES.items()}
    for name, mask in masks.items():
        assert 0.05 < mask.mean() < 0.7, name
    for one in masks:
        for other in masks:
            if one != other:
                overlap = (masks[one] & masks[other]).sum() / (masks[one] | masks[other]).sum()
                assert overlap < 0.9, (one, other)


@pytest.mark.parametrize("count", [0, -10, 15])
def test_a_number_that_the_classes_cannot_share_is_refused(count):
    with pytest.raises(ValueError, match=f"cannot draw {count} images"):
        shapes32(count, 1)
