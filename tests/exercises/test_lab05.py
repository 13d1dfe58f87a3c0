"""Lab 05: right answers in other clothes pass, and what students write wrongly gets its own sentence.

Everything runs in this process, by the same way as `check`; `test_every_exercise.py` goes through the child.
"""

import random

import numpy as np
import pytest
import torch
from newcomer_05 import FOUND, ByIndex
from proof import verdict_on

from lockstep.exercises import find
from lockstep.exercises.lab05 import QUESTIONS
from lockstep.exercises.lab05.batch_norm import one_each_way
from lockstep.exercises.lab05.bucketing import make_buckets
from lockstep.exercises.lab05.overlap_right import OverlappedDDP
from lockstep.exercises.lab05.toys import build
from lockstep.exercises.observe import Observation


def outcome(exercise_id: str, fn) -> tuple[str, str]:
    """Status, and the known mistake it was taken for."""
    verdict = verdict_on(find(exercise_id), fn)
    return verdict.status, verdict.mistake


@pytest.mark.parametrize("exercise_id, fn, words", FOUND, ids=[f"{id}-{fn.__name__}" for id, fn, _ in FOUND])
def test_what_a_newcomer_wrote_gets_its_cause(exercise_id, fn, words):
    # Some passed; the others got a wrong cause or none: one error was taken for another, or a case told two faults alike.
    verdict = verdict_on(find(exercise_id), fn)
    assert not verdict.passed
    for word in words:
        told = " ".join((verdict.expected, verdict.seen, verdict.cause))
        assert (word.removeprefix("-") in told) is not word.startswith("-"), verdict.text


def test_the_class_that_they_changed_is_right():
    assert outcome("05.4", ByIndex) == ("passed", "")


def test_the_cases_of_buckets_say_how_many_there_are():
    # "A bucket for each parameter", said a case, and its verdict "expected 2, one for each bucket" of 3 parameters.
    for case in find("05.4").draw(0):
        buckets = make_buckets(list(build(case.args[0], 0).parameters()), case.args[1])
        assert ("one bucket" if len(buckets) == 1 else "two buckets") in case.name and len(buckets) <= 2


def test_one_collective_is_no_plural():
    found = one_each_way(None, Observation(collectives=(("all_reduce",),)), None)
    assert "1 collective in" in found.sentence


# --- 05.1


def test_shard_may_be_an_array_a_tensor_or_a_range_of_a_shuffle():
    def shard(n, rank, size, epoch, seed):
        order = np.random.RandomState(seed * 1000 + epoch).permutation(n)
        return torch.from_numpy(order[n * rank // size : n * (rank + 1) // size].copy())

    assert outcome("05.1", shard) == ("passed", "")


def test_shards_of_own_orders_are_recognised_with_any_generator():
    def shard(n, rank, size, epoch, seed):
        return random.Random(f"{seed} {epoch} {rank}").sample(range(n), n)[rank::size]

    assert outcome("05.1", shard) == ("wrong", "every rank shuffles for itself")


def test_a_shard_that_seeds_numpy_globally_is_told_so():
    def shard(n, rank, size, epoch, seed):
        np.random.seed(seed + epoch)
        return np.random.permutation(n)[rank::size].tolist()

    assert outcome("05.1", shard) == ("wrong", "same dropout mask on every rank")


# --- 05.2


def test_gradients_may_be_weighted_after_a_gather():
    def average_gradients(model, comm, samples):
        counts = comm.all_gather(torch.tensor([float(samples)]))
        for p in model.parameters():
            if p.requires_grad:
                own = torch.zeros_like(p) if p.grad is None else p.grad
                rows = comm.all_gather(own.reshape(1, -1))
                p.grad = (rows * (counts / counts.sum())[:, None]).sum(0).view_as(p)

    assert outcome("05.2", average_gradients) == ("passed", "")


def test_a_mean_of_means_is_recognised_though_missing_gradients_come_on_top():
    # Every later case fails for another reason, so no known mistake behaves alike on all of them.
    def average_gradients(model, comm, samples):
        for p in model.parameters():
            comm.all_reduce(p.grad)
            p.grad /= comm.size

    assert outcome("05.2", average_gradients) == ("wrong", "weights each rank alike though shards differ")


# --- 05.3


def test_buckets_of_parameters_instead_of_indices_get_a_sentence():
    # Comparing tensors with indices once ended the check itself.
    verdict = verdict_on(find("05.3"), lambda parameters, bucket_bytes: [list(parameters)])
    assert verdict.status == "wrong" and "no index" in verdict.seen


# --- 05.4


def test_a_class_may_listen_to_every_gradient_with_its_own_closure():
    class Mine:
        def __init__(self, model, comm, bucket_bytes):
            self.comm, self.sync, self.handles = comm, True, []
            for tensor in model.state_dict().values():
                comm.broadcast(tensor)
            parameters = [p for p in model.parameters()]
            for indices in make_buckets(parameters, bucket_bytes):
                self.watch([parameters[i] for i in indices])

        def watch(self, bucket):
            missing = set(bucket)

            def hook(p):
                if not self.sync:
                    return
                missing.discard(p)
                if not missing:
                    missing.update(bucket)
                    flat = torch.nn.utils.parameters_to_vector([q.grad for q in bucket])
                    self.handles.append((bucket, flat, self.comm.all_reduce(flat, "mean", True)))

            for p in bucket:
                p.register_post_accumulate_grad_hook(hook)

        def finish(self):
            while self.handles:
                bucket, flat, handle = self.handles.pop()
                handle.wait()
                torch.nn.utils.vector_to_parameters(flat, [q.grad for q in bucket])

    assert outcome("05.4", Mine) == ("passed", "")


def test_a_reduction_in_double_precision_sends_too_much():
    class Doubled(OverlappedDDP):
        def count(self, parameter, bucket, ready):
            if self.sync:
                ready.append(parameter)
                if len(ready) == len(bucket):
                    ready.clear()
                    flat = torch.cat([p.grad.flatten() for p in bucket]).double()
                    self.started.append((bucket, flat, self.comm.all_reduce(flat, op="mean", async_op=True)))

    verdict = verdict_on(find("05.4"), Doubled)
    assert verdict.status == "wrong" and "bytes in a step where" in verdict.seen


def test_the_stub_of_a_class_is_not_attempted():
    # A class is sent to the ranks by value, and then what they raised came home without a traceback: the stub in the
    # notebook counted as a crash, and no verdict on a class named a line.
    class Stub:
        def __init__(self, model, comm, bucket_bytes):
            raise NotImplementedError("copy rank 0's parameters")

    assert outcome("05.4", Stub) == ("not attempted", "")

    class Wrong(Stub):
        def __init__(self, model, comm, bucket_bytes):
            comm.broadcast(model.nothing)

    assert "on line" in verdict_on(find("05.4"), Wrong).seen


# --- 05.7


def test_batch_norm_may_gather_sums_instead_of_reducing_them():
    # Right in the numbers and in their count: which collective it is stays free.
    class Gathered(torch.autograd.Function):
        @staticmethod
        def forward(ctx, comm, tensor):
            ctx.comm = comm
            return comm.all_gather(tensor[None]).sum(0)

        @staticmethod
        def backward(ctx, gradient):
            return None, ctx.comm.all_gather(gradient[None].contiguous()).sum(0)

    def sync_batch_norm(comm, x, weight, bias, eps):
        rows = x.permute(1, 0, 2, 3).flatten(1)
        own = torch.stack([rows.sum(1), rows.square().sum(1), rows.new_full((len(rows),), rows.shape[1])])
        sums, squares, count = Gathered.apply(comm, own)
        mean = sums / count
        normal = (rows - mean[:, None]) / (squares / count - mean.square() + eps).sqrt()[:, None]
        n, c, h, w = x.shape
        return (normal * weight[:, None] + bias[:, None]).view(c, n, h, w).permute(1, 0, 2, 3)

    assert outcome("05.7", sync_batch_norm) == ("passed", "")


# --- what the lab promises


def test_the_right_answers_are_in_different_places():
    right = [next(letter for letter, o in q.letters.items() if o.right) for q in QUESTIONS]
    assert len(set(right)) == len(right) == 4


@pytest.mark.parametrize("id", ["05.1", "05.2", "05.3", "05.4"])
def test_the_core_is_four_exercises(id):
    assert find(id).core and not find("05.5").core
