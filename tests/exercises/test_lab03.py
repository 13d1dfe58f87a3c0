"""Lab 03: right answers in other clothes pass, what students get wrong is named, and the rules are PyTorch's own."""

import math

import pytest
import torch
from newcomer_03 import FOUND
from proof import verdict_on

from lockstep.cost import measure_saved_bytes, profile
from lockstep.exercises import diagnose, find
from lockstep.exercises.lab03 import EXERCISES, QUESTIONS
from lockstep.exercises.lab03.activations import build


def verdict(exercise_id, fn):
    """Status, known mistake and what was seen: as `check`, without a child process for each function."""
    outcome = verdict_on(find(exercise_id), fn)
    return outcome.status, outcome.mistake, outcome.seen


def test_the_cores_are_those_of_the_plan():
    assert [one.id for one in EXERCISES if one.core] == ["03.1", "03.2", "03.3", "03.6"]


def test_right_answers_stand_in_different_places():
    right = [next(letter for letter, o in q.letters.items() if o.right) for q in QUESTIONS]
    assert len(QUESTIONS) >= 3 and len(set(right)) >= 3


def test_a_riddle_can_be_read():
    riddle = diagnose("03", seed=3)
    assert riddle.exercise.lab == "03" and riddle.right in riddle.options


@pytest.mark.parametrize("seed", range(2))
def test_what_a_chain_keeps_is_what_pytorch_keeps(seed):
    # The reference knows rules; here the layers are built and run, with and without numbers.
    exercise = find("03.2")
    for case in exercise.draw(seed):
        batch, image, layers = case.args
        model = build(image, layers)
        expected = exercise.reference(*case.args)
        assert measure_saved_bytes(model, torch.zeros(batch, *image)) == expected, case.name
        assert profile(model, image, batch).saved_bytes == expected, case.name


@pytest.mark.parametrize("seed", range(2))
def test_the_cost_of_a_convolution_is_what_a_profile_counts(seed):
    exercise = find("03.1")
    for case in exercise.draw(seed):
        c_in, c_out, k, height, width, groups, bias = case.args
        layer = torch.nn.Conv2d(c_in, c_out, k, groups=groups, bias=bias, device="meta")
        found = profile(layer, (c_in, height + k - 1, width + k - 1))
        assert (found.parameters, found.macs) == exercise.reference(*case.args)


class TestRightInOtherClothes:
    def test_numbers_as_floats_and_lists(self):
        def conv_cost(c_in, c_out, kernel, height, width, groups, bias):
            w = torch.empty(c_out, int(c_in / groups), kernel, kernel)
            return [torch.tensor(w.numel() + bias * c_out), float(w.numel() * height * width)]

        assert verdict("03.1", conv_cost)[0] == "passed"

    def test_parts_in_another_order(self):
        def training_memory(p, a, optimizer, precision):
            small = dict(fp32=4, mixed=2)[precision]
            states = ["sgd", "momentum", "adam"].index(optimizer)
            return dict(activations=a * small, optimizer=p * 4.0 * states, master=p * (8 - 2 * small if small == 2 else 0),
                        gradients=p * small, parameters=p * small)  # fmt: skip

        assert verdict("03.3", training_memory)[0] == "passed"

    def test_another_length_that_needs_as_little(self):
        def checkpoint_every(layers, inputs, kept):
            return max(range(1, layers + 1), key=lambda n: (-(math.ceil(layers / n) * inputs + n * kept), n))

        assert verdict("03.5", checkpoint_every)[0] == "passed"

    def test_seconds_as_a_tensor(self):
        def what_limits(macs, memory, network, flops, bandwidth, link):
            t = torch.tensor([macs / flops * 2, memory / bandwidth, network / link], dtype=torch.float64)
            return ("computation", "memory", "network")[int(t.argmax())], t.max()

        assert verdict("03.6", what_limits)[0] == "passed"


# What newcomers wrote that is no listed mistake as it stands, or two of them at once.
def bias_at_every_pixel_of_both(c_in, c_out, kernel, height, width, groups, bias):
    weights = kernel * kernel * c_in * c_out // groups
    return weights + bias * c_out * height * width, weights * height * width + bias * c_out * height * width


def no_groups_and_flops(c_in, c_out, kernel, height, width, groups, bias):
    weights = kernel * kernel * c_in * c_out
    return weights + c_out * bias, 2 * weights * height * width


def sgd_like_momentum_in_halves(p, a, optimizer, precision):
    width = 4 if precision == "fp32" else 2
    state = {"sgd": 0, "momentum": width, "adam": 2 * width}[optimizer]
    return {"parameters": width * p, "gradients": width * p, "master": 4 * p if width == 2 else 0,
            "optimizer": state * p, "activations": width * a}  # fmt: skip


def gigabytes_rounded(memory_gib, fixed, image):
    return round((memory_gib * 1e9 - fixed) / image)


def forgets_the_return(memory_gib, fixed, image):
    int((memory_gib * 2**30 - fixed) // image)


def plain_root(layers, inputs, kept):
    return int(layers**0.5)


def seconds_first(macs, memory, network, flops, bandwidth, link):
    return max(2 * macs / flops, memory / bandwidth, network / link), "computation"


def images_only(batch, image, layers):
    kept = 4 * batch * math.prod(image)
    return kept + sum(4 * batch * math.prod(shape) for _, shape in layers)


@pytest.mark.parametrize(
    ("exercise_id", "fn", "words"),
    [
        ("03.1", bias_at_every_pixel_of_both, "bias"),
        ("03.1", no_groups_and_flops, "FLOPs"),
        ("03.3", sgd_like_momentum_in_halves, "stays in 4 bytes"),
        ("03.4", gigabytes_rounded, "10^9"),
        ("03.4", forgets_the_return, ""),
        ("03.5", plain_root, "square root"),
        ("03.6", seconds_first, ""),
        ("03.2", images_only, "output"),
    ],
)
def test_two_mistakes_at_once_get_the_cause_of_one(exercise_id, fn, words):
    outcome = verdict_on(find(exercise_id), fn)
    assert outcome.status == "wrong"
    assert words in outcome.cause, outcome.text


@pytest.mark.parametrize("exercise_id, fn, words", FOUND, ids=[f"{id}-{fn.__name__}" for id, fn, _ in FOUND])
def test_what_a_newcomer_wrote_gets_its_cause(exercise_id, fn, words):
    outcome = verdict_on(find(exercise_id), fn)
    assert outcome.status == "wrong"
    for word in words:
        assert (word.removeprefix("-") in outcome.cause) is not word.startswith("-"), outcome.text


def test_a_missing_key_is_named():
    outcome = verdict_on(find("03.3"), next(fn for _, fn, _ in FOUND if fn.__name__ == "master_key_missing"))
    assert "The key 'master' is missing." in outcome.text


def test_a_missing_return_is_said():
    assert "return" in verdict("03.4", forgets_the_return)[2]
