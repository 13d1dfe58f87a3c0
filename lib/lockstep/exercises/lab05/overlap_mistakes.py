"""Exercise 05.4: what students get wrong, with the sentences that they get.

Floor 4, room `exercises`; wrong solutions are in `overlap_wrong.py`.
"""

from __future__ import annotations

from lockstep.exercises.compare import differs
from lockstep.exercises.exercise import Case, Mistake
from lockstep.exercises.lab05 import overlap_wrong as wrong
from lockstep.exercises.lab05.overlap_judge import SYNC, reductions
from lockstep.exercises.observe import Observation
from lockstep.exercises.symptoms import raises


def never_full(case: Case, seen: Observation, expected: Observation) -> bool:
    """A bucket that waits for more than it can get is never sent."""
    if seen.error is not None or len(reductions(seen, 0)[0]) >= len(reductions(expected, 0)[0]):
        return False
    return sum(seen.value[0]["sizes"][0]) < sum(expected.value[0]["sizes"][0])


def never_full_with_a_frozen_one(case: Case, seen: Observation, expected: Observation) -> bool:
    return case.args[0] == "tied" and never_full(case, seen, expected)


def never_full_though_all_are_trained(case: Case, seen: Observation, expected: Observation) -> bool:
    return case.args[0] == "plain" and never_full(case, seen, expected)


def reads_no_gradient(case: Case, seen: Observation, expected: Observation) -> bool:
    return seen.error is not None and "NoneType' object has no attribute" in seen.error.message


def leaves_handles(case: Case, seen: Observation, expected: Observation) -> bool:
    """After the first step a reduction is still on its way."""
    return seen.error is None and any(one["left"][0] for one in seen.value)


def sends_while_accumulating(case: Case, seen: Observation, expected: Observation) -> bool:
    return seen.error is None and bool(reductions(seen, 0)[SYNC.index(False)])


def changes_rank_0(case: Case, seen: Observation, expected: Observation) -> bool:
    """Rank 0 itself begins with other parameters than it had."""
    return seen.error is None and differs(seen.value[0]["start"], expected.value[0]["start"], 1e-5, 1e-8) is not None


MISTAKES = (
    Mistake(
        "no initial broadcast",
        wrong.NoInitialBroadcast,
        "The ranks begin with different parameters. Equal gradients then keep them apart for ever: every rank "
        "trains a network of its own. Broadcast rank 0's parameters and buffers in the constructor.",
    ),
    Mistake(
        "averages the start",
        wrong.AveragesTheStart,
        "Rank 0's own parameters have changed: you average the ranks' parameters. A mean of random networks is a "
        "worse start than any of them; all take those of rank 0.",
        symptom=changes_rank_0,
    ),
    Mistake(
        "forgets the buffers",
        wrong.ForgetsBuffers,
        "The parameters agree, the buffers do not. A buffer is not trained, but the forward pass uses it, as batch "
        "norm does its running mean. Broadcast `model.buffers()` too.",
    ),
    Mistake(
        "has no `sync` at first",
        wrong.HasNoSyncAtFirst,
        "The attribute `sync` has to exist and be True at first: set it in `__init__`. Only then can somebody set "
        "it to False.",
        symptom=raises("AttributeError", "no attribute 'sync'"),
    ),
    Mistake(
        "reduces after backward",
        wrong.ReducesAfterBackward,
        "Every reduction begins when backward has ended: nothing is hidden behind anything. Start it in the hook "
        "of the bucket's last gradient, and only wait in `finish`.",
    ),
    Mistake(
        "waits in the hook",
        wrong.WaitsInTheHook,
        "You wait for the result inside the hook. Autograd runs hooks in the middle of backward, so the next "
        "layer is not computed until they return. Pass `async_op=True`, keep the handle, wait in `finish`.",
    ),
    Mistake(
        "handle never waited",
        wrong.NeverWaits,
        "You read the flat tensor without having waited for its handle. Until `wait()` has returned, it may hold "
        "anything; here it still holds this rank's own gradients.",
        symptom=leaves_handles,
    ),
    Mistake(
        "sum for mean",
        wrong.SumForMean,
        "These are sums over the ranks; the mean is asked for. Every step would be as many times too long as there "
        "are ranks.",
    ),
    Mistake(
        "leaves the results in the bucket",
        wrong.LeavesResultsInTheBucket,
        "The means are in the flat tensors, and `.grad` still holds this rank's own gradients. `torch.cat` made a "
        "copy: what comes back has to be copied home.",
    ),
    Mistake(
        "reduces during accumulation",
        wrong.ReducesWhileAccumulating,
        "While `sync` is False nothing may be sent: the gradient is not complete before the last of the backward "
        "passes. Ask `self.sync` at the top of the hook.",
        symptom=sends_while_accumulating,
    ),
    Mistake(
        "counts during accumulation",
        wrong.CountsWhileAccumulating,
        "A pass without sync has already been counted, so in the next one a bucket counts as full before its "
        "gradients are there. Without sync the hook has to leave the counts alone.",
    ),
    Mistake(
        "counts on while accumulating",
        wrong.CountsOnWhileAccumulating,
        "Two steps are right, but after a pass without `sync` nothing is sent: the bucket has counted that pass's "
        "gradients too, and goes beyond its number. Do not count while `sync` is False.",
    ),
    Mistake(
        "drops what it accumulated",
        wrong.DropsWhatItAccumulated,
        "What a pass without `sync` computed is lost. Its gradients have to stay in `.grad`, where autograd adds "
        "those of the next pass to them: without `sync` the hook does nothing at all.",
    ),
    Mistake(
        "never forgets a handle",
        wrong.NeverForgetsAHandle,
        "Your list of handles is never emptied. Every `finish` copies home all results since the start, and the "
        "list keeps the memory of all of them. Empty it at the end of `finish`.",
    ),
    Mistake(
        "tied weight reduced twice",
        wrong.CountsTiedOnesTwice,
        "A weight that two layers share is one parameter with one gradient. Yours is in the buckets twice, so it "
        "travels twice. `model.parameters()` gives it once.",
    ),
    Mistake(
        "frozen parameter waits for ever",
        wrong.WaitsForFrozenOnes,
        "A bucket waits for more gradients than it can get, so it is never sent: a frozen parameter has no "
        "gradient and its hook never runs. Count the trained ones only.",
        symptom=never_full_with_a_frozen_one,
    ),
    Mistake(
        "counts only the first step",
        wrong.StopsAfterOneStep,
        "The first step is right and the next one is not reduced: the counts of a bucket have to begin anew once "
        "it has been sent.",
    ),
    Mistake(
        "lambda in a loop binds late",
        wrong.BindsLate,
        "A bucket is never full: fewer gradients are counted than there are. Is the hook a lambda in a loop over "
        "`i`? It looks `i` up when it runs, so every hook sees the last `i`. Bind it when the hook is made: "
        "`lambda p, i=i: ...`.",
        symptom=never_full_though_all_are_trained,
    ),
    Mistake(
        "listens too early",
        wrong.ListensTooEarly,
        "A gradient is None when a bucket is sent. There are two ways to get there: a hook of `register_hook` runs "
        "before the gradient is in `.grad` (one of `register_post_accumulate_grad_hook` runs after it); and a "
        "lambda in a loop, unless it binds them (`lambda p, b=bucket: ...`), sees the last values of the loop's "
        "variables, so it fills the wrong bucket.",
        symptom=reads_no_gradient,
    ),
    Mistake(
        "sends every parameter alone",
        wrong.SendsEachAlone,
        "Every gradient travels alone. The buckets are there so that small ones share a message: send when the "
        "last gradient of a bucket is ready, not at each one.",
    ),
    Mistake(
        "reverses before it makes buckets",
        wrong.ReversesBeforeBuckets,
        "Your buckets hold other parameters than those of `make_buckets(list(model.parameters()), bucket_bytes)`. "
        "It goes from the last parameter to the first by itself: give it the parameters in their own order.",
    ),
    Mistake(
        "sends at the first gradient",
        wrong.SendsAtTheFirst,
        "A bucket is sent when its first gradient is ready; the others in it are not there yet. Wait for the last.",
    ),
)
