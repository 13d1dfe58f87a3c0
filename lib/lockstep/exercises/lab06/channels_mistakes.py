"""Exercise 06.5: what students get wrong, with the sentences that they get.

Floor 4, room `exercises`; the exercise is in `channels.py`, the wrong solutions are in `channels_wrong.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lockstep.exercises.compare import differs
from lockstep.exercises.exercise import Case, Mistake, Symptom
from lockstep.exercises.lab06.channels_wrong import (
    adds_the_gradients_up,
    always_pads,
    begins_at_rank_times_own,
    by_way_of,
    counts_on_equal_shares,
    divides_the_gradient,
    forgets_the_padding,
    forgets_to_transpose_back,
    gathers_outside_autograd,
    gathers_the_weights,
    gives_no_gradient,
    gives_sizes_of_channels_to_images,
    gives_the_whole_gradient,
    input_gradient_not_reduced,
    joins_along_the_images,
    joins_images,
    leaves_the_bias_out,
    reduces_a_padded_output,
    reshapes_for_a_transpose,
    returns_its_own_channels,
    takes_the_first_channels,
    takes_the_mean,
    without_weight,
    works_the_shares_out,
)
from lockstep.exercises.lab06.functions import function_mistakes, input_is_cut_off
from lockstep.exercises.lab06.passes import even_shares
from lockstep.exercises.observe import Observation
from lockstep.exercises.symptoms import says


def returns_shape(of: Callable[[Case, int, Sequence[int]], Sequence[int]]) -> Symptom:
    """Every rank's y has the shape `of(case, rank, right shape)`, and somewhere that is not the right one."""

    def symptom(case: Case, seen: Observation, expected: Observation) -> bool:
        if seen.error is not None:
            return False
        right = [tuple(one["y"].shape) for one in expected.value]
        wrong = [tuple(of(case, rank, shape)) for rank, shape in enumerate(right)]
        return [tuple(getattr(one["y"], "shape", ())) for one in seen.value] == wrong != right

    return symptom


own_channels_only = returns_shape(lambda case, rank, y: (y[0], case.args[3][rank], *y[2:]))
ranks_behind_each_other = returns_shape(lambda case, rank, y: (y[0] * case.ranks, case.args[3][rank], *y[2:]))
channels_before_images = returns_shape(lambda case, rank, y: (y[1], y[0], *y[2:]))


def by_padding(times: Callable[[int], int]) -> Symptom:
    """Output images are wider than they should be by twice `times(padding)`."""
    return returns_shape(lambda case, rank, y: (*y[:2], *(side + 2 * times(case.args[2]) for side in y[2:])))


too_small, too_large = by_padding(lambda padding: -padding), by_padding(lambda padding: 1 - padding)


def stumbles_over_unequal_shares(case: Case, seen: Observation, expected: Observation) -> bool:
    """The first failure is a gather of unequal parts."""
    return seen.error is not None and "all_gather" in seen.error.message and len(set(case.args[3])) > 1


def sizes_do_not_fit(alone: bool) -> Symptom:
    """A gather is told other sizes than there are rows: on the only rank, or first where the shares are not even."""

    def symptom(case: Case, seen: Observation, expected: Observation) -> bool:
        unfit = seen.error is not None and "sizes[" in seen.error.message and "rows" in seen.error.message
        shares = case.args[3]
        return unfit and (case.ranks == 1 if alone else shares != even_shares(sum(shares), case.ranks))

    return symptom


def weights_learn_too_little(case: Case, seen: Observation, expected: Observation) -> bool:
    """The gradient of the weights is divided by the number of ranks."""
    if seen.error is not None or case.ranks < 2:
        return False
    pairs = [[one["the gradient of weight"] for one in both] for both in zip(seen.value, expected.value, strict=True)]
    return all(mine is not None and differs(mine * case.ranks, right, 1e-4, 1e-5) is None for mine, right in pairs)


MISTAKES = (
    Mistake(
        "input gradient not reduced",
        input_gradient_not_reduced,
        "The gradient of `x` is only what came through this rank's channels. Every input acts on all channels: add "
        "the parts up in backward, as in 06.3.",
    ),
    Mistake(
        "gathers outside autograd",
        gathers_outside_autograd,
        "What `comm.all_gather` gives has no history, so backward stops there. Wrap it in a "
        "`torch.autograd.Function` whose backward takes this rank's part.",
    ),
    Mistake(
        "joins along the images",
        joins_along_the_images,
        "The numbers are there, in the wrong places: what was gathered lies rank after rank, and you read it image "
        "after image. Make the channels dimension 0 before the gather, and put them back after it.",
    ),
    Mistake(
        "adds the gradients up",
        adds_the_gradients_up,
        "Gradients are too large, by the number of ranks. Behind the gather all ranks compute the same loss, so each "
        "has the whole gradient already: cut your channels out of it, and add nothing up.",
    ),
    Mistake(
        "takes the first channels",
        takes_the_first_channels,
        "Every rank takes its gradient from the first channels. Rank r's begin behind those of all ranks before it.",
    ),
    Mistake(
        "counts on equal shares",
        counts_on_equal_shares,
        "The shares may be unequal, as with 5 channels on 3 ranks. Tell the gather: `channels` are the rows of each "
        "rank, and say where its part of the gradient begins.",
        symptom=stumbles_over_unequal_shares,
    ),
    Mistake(
        "reduces a padded output",
        reduces_a_padded_output,
        "The numbers are right, but you all-reduce an output that is mostly zeros. Each channel has one owner, so "
        "nothing has to be added up: a gather sends half the bytes.",
    ),
    Mistake(
        "returns its own channels only",
        returns_its_own_channels,
        "You return this rank's channels. Here all of them are asked, on every rank.",
        symptom=own_channels_only,
    ),
    Mistake(
        "forgets the padding",
        forgets_the_padding,
        "The output images are smaller than they should be: the padding is missing.",
        symptom=too_small,
    ),
    Mistake(
        "leaves the bias out",
        leaves_the_bias_out,
        "The outputs lack the bias. Each rank has the biases of its own channels, and adds those before the gather.",
    ),
    Mistake(
        "divides the gradient",
        divides_the_gradient,
        "You divide by the number of ranks what backward begins with. It is the whole gradient already, on every rank: cut "
        "your channels out of it, and leave them as they are.",
        symptom=weights_learn_too_little,
    ),
    Mistake(
        "takes the mean",
        takes_the_mean,
        "You average the parts of the gradient of `x`. They are parts of one sum, over all channels: add them up.",
    ),
    Mistake(
        "gives the whole gradient",
        gives_the_whole_gradient,
        "Backward of your gather gives the gradient of *all* channels, and your convolution made only some of them. Cut this "
        "rank's out.",
    ),
    Mistake(
        "begins at rank times own",
        begins_at_rank_times_own,
        "Rank r's channels do not begin at r times its own number of them: the ranks before it may have more or fewer. Add up "
        "theirs.",
        symptom=says("invalid gradient at index"),
    ),
    Mistake(
        "works the shares out itself",
        works_the_shares_out,
        "You work the shares out from their sum. `channels` says what each rank has, and [1, 3] is as possible as [2, 2].",
        symptom=sizes_do_not_fit(alone=False),
    ),
    Mistake(
        "gives sizes of channels to images",
        gives_sizes_of_channels_to_images,
        "`comm.all_gather` joins along dimension 0, which is the images, and `channels` are the sizes of dimension 1. Make the "
        "channels dimension 0 before the gather, and put them back after it.",
        symptom=sizes_do_not_fit(alone=True),
    ),
    Mistake(
        "joins images",
        joins_images,
        "The ranks' outputs lie one behind the other as if they were other images. `comm.all_gather` joins along dimension "
        "0, and the channels are dimension 1.",
        symptom=ranks_behind_each_other,
    ),
    Mistake(
        "forgets to transpose back",
        forgets_to_transpose_back,
        "Channels come first in what you return, then images. After the gather they have to change places again.",
        symptom=channels_before_images,
    ),
    Mistake(
        "reshapes for a transpose",
        reshapes_for_a_transpose,
        "Shapes are right, numbers are in the wrong places: `reshape` reads on in the same order and swaps nothing. "
        "`transpose(0, 1)` makes images the first dimension again.",
    ),
    Mistake(
        "always pads",
        always_pads,
        "The output images are larger than they should be: pad by `padding`, which may be 0.",
        symptom=too_large,
    ),
    Mistake(
        "gathers the weights",
        gathers_the_weights,
        "Every rank gathers all weights and computes every channel, so nothing is shared out. Each computes its own channels, "
        "and these are gathered.",
    ),
    Mistake(
        "backward gives nothing",
        gives_no_gradient,
        "`x` gets no gradient: either `backward` of your Function has no `return`, or the layer works with an `x` that was "
        "detached.",
        symptom=input_is_cut_off,
    ),
    *function_mistakes(by_way_of, without_weight, "CopyToRanks"),
)
