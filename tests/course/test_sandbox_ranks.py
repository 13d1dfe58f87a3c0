"""Ranks in a box: every call gives what it gives in a notebook, and the grader sees it."""

import inspect
import random
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from cheats import TOTAL

from lockstep.comm import Bucket, RingAllReduce
from lockstep.course.grade.submission import Program, Statement
from lockstep.course.sandbox import levels, trying
from lockstep.course.sandbox.box import box
from lockstep.exercises.compare import alike
from lockstep.exercises.exercise import on_ranks
from lockstep.exercises.trial import observe_here

pytestmark = pytest.mark.skipif(bool(levels.lacking("process")), reason="students' code is graded on Linux only")


def said(text):
    return Program((Statement(text, 1, 1),))


def everything(comm, x):
    with comm.span("work", cost=1e-3, micro_batch=2):
        handle = comm.all_reduce(x, async_op=True)
    pair = comm.split(comm.rank % 2, key=-comm.rank)
    members = pair.all_gather(torch.tensor([float(comm.rank)]))
    left, right = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
    found = torch.zeros(2)
    coming, going = comm.irecv(found, left), comm.isend(torch.full((2,), 1.0 + comm.rank), right)
    given = [coming.wait() is found, going.wait(), found.clone(), handle.wait() is x, x.clone(), members, pair.rank]
    given += [comm.reduce_scatter(torch.arange(7.0), op="max"), comm.all_to_all(torch.arange(comm.size) + comm.rank)]
    given += [comm.broadcast(torch.tensor([comm.rank]), src=1), comm.gather(torch.tensor([comm.rank]), dst=1)]
    tensors = [torch.tensor(9.0 * r) for r in range(comm.size)] if comm.rank == 0 else None
    given += [comm.scatter(torch.tensor(0.0), tensors), comm.reduce(torch.tensor([2]), dst=0, op="product")]
    flat = torch.full((5,), float(comm.rank))
    waiting = RingAllReduce().start(comm, Bucket(0, flat, (flat,)))
    waiting.wait()
    wire = comm.on_cpu()

    def swap(own):
        got = torch.zeros(1)
        own.exchange([(torch.tensor([own.rank + 0.5]), right)], [(got, left)])
        return got

    given += [flat.clone(), wire.beside(swap).wait(), torch.rand(2), np.random.rand(), random.random()]
    if comm.rank == 0:
        comm.send(torch.ones(3), 1)
    elif comm.rank == 1:
        given.append(comm.recv(torch.zeros(3)))
    comm.barrier()
    try:
        comm.send(torch.ones(1), comm.size)
    except Exception as error:
        given.append(f"{type(error).__name__}: {error}")
    return [*given, comm.now(), comm.traffic.bytes_sent, comm.traffic.sent_to, len(comm.unfinished)]


def in_the_box(function, exercise=TOTAL):
    """Observations of the exercise's cases, of `function`, in a box and in the simulated world of this process."""
    text = "import random\nimport numpy as np\nimport torch\nfrom lockstep.comm import Bucket, RingAllReduce\n\n"
    exercise = replace(exercise, reference=function, function=function.__name__, forbidden=())
    cases = exercise.draw(1)
    tried = trying.try_program(box("process"), exercise, said(text + inspect.getsource(function)), [cases])
    return tried.seen[0], observe_here(exercise, function, cases)


class TestRanks:
    def test_every_call_gives_in_the_box_what_it_gives_in_a_notebook(self):
        def cases(rng):
            for ranks in (2, 5):
                yield on_ranks(ranks, each=[(torch.tensor(rng.normal(size=4)),) for _ in range(ranks)], seed=3)

        seen, expected = in_the_box(everything, replace(TOTAL, cases=cases))
        for mine, theirs in zip(seen, expected, strict=True):
            assert mine.error is None and theirs.error is None, (mine.error, theirs.error)
            for got, want in zip(mine.value, theirs.value, strict=True):
                assert [alike(g, w) for g, w in zip(got, want, strict=True)] == [True] * len(want)
            assert alike(list(mine.arguments), list(theirs.arguments)) and mine.traffic == theirs.traffic
            assert mine.seconds == theirs.seconds and mine.trace.messages == theirs.trace.messages
            assert [(s.rank, s.kind, s.name, s.start, s.end) for s in mine.trace.spans] == [
                (s.rank, s.kind, s.name, s.start, s.end) for s in theirs.trace.spans
            ]
            assert [set(one) <= set(other) for one, other in zip(theirs.collectives, mine.collectives, strict=True)]

    def test_errors_have_the_words_that_check_has(self):
        def mismatched(comm, x):
            comm.all_gather(x) if comm.rank else comm.barrier()

        def forgets(comm, x):
            comm.irecv(x, 1 - comm.rank) if comm.rank < 2 else None
            comm.isend(x.clone(), 1 - comm.rank) if comm.rank < 2 else None

        def meddles(comm, x):
            if comm.rank < 2:
                coming, going = comm.irecv(torch.zeros(3), 1 - comm.rank), comm.isend(x, 1 - comm.rank)
                x += 1
                coming.wait()
                going.wait()

        def stuck(comm, x):
            comm.recv(x, (comm.rank + 1) % comm.size)

        for function in (mismatched, forgets, meddles, stuck):
            source = inspect.getsource(function)
            cut = replace(TOTAL, reference=function, function=function.__name__)
            text = "import torch\n" + inspect.cleandoc("\n" + source)
            tried = trying.try_program(box("process"), cut, said(text), [cut.draw(1)[:1]])
            (mine,), (theirs,) = tried.seen[0], observe_here(cut, function, cut.draw(1)[:1])
            assert mine.error.type == theirs.error.type and mine.error.rank == theirs.error.rank
            words = [re.sub(r"\(the call: .*\):|\([^()]*line \d+\)", "", one.error.message) for one in (mine, theirs)]
            assert words[0] == words[1] and mine.error.waits == theirs.error.waits
