"""An exercise is a value: what is asked, how cases are drawn, how a run is observed and how it is judged.

Floor 4, room `exercises`; read this first, then `observe.py` (what runs in the child) and `judge.py`
(what decides, in the parent). A lab's module `labNN.py` holds `EXERCISES`, a tuple of these values,
and `QUESTIONS`, a tuple of `Question`. The same value serves `check`, grading and the test suite.

Vocabulary: a *case* is one input. To *observe* is to run a function on a case in a child that holds no
expected value; the *observation* is plain data. To *judge* is to compare it, in the parent, with what the
reference did on the same case; a *finding* says what is wrong. A *known mistake* is a wrong solution that
students really write. Nobody compares source code: a student's function gets a mistake's sentence when
every case finds the same wrong with both, so the mistake is its own detector.

A rank function and a plain function, whole::

    def hello(comm):
        mine = comm.rank ** 2
        total = comm.all_reduce(torch.tensor(mine))
        return mine, int(total)

    def hello_by_gathering(comm): ...            # two other right ways, written independently
    def hello_in_place(comm): ...
    def hello_stub(comm):
        raise NotImplementedError("return this rank's square and the sum of all squares")
    def sums_locally(comm):
        return comm.rank ** 2, comm.rank ** 2

    HELLO = Exercise(
        id="00.1", title="Hello, ranks", points=2, function="hello",
        asks="Return a pair: this rank's square, and the sum of the squares of all ranks.",
        reference=hello, also_right=(hello_by_gathering, hello_in_place), stub=hello_stub,
        cases=lambda rng: [on_ranks(n) for n in (1, 2, 3, 5, 8)],
        observe=Simulate(),
        judge=all_of(same_value(), same_collectives()),
        hints=("Which ranks know the square of rank 3?", "`comm.all_reduce(tensor)` adds up every rank's tensor."),
        mistakes=(
            Mistake("uses the local value", sums_locally,
                    "The sum holds only this rank's own square: nothing was sent to the others."),
            ...                                  # at least four
        ),
    )

    AMDAHL = Exercise(
        id="00.2", title="Amdahl's law", points=1, function="amdahl",
        asks="Return the speed-up on `workers` workers when the share `serial` cannot be divided.",
        cases=lambda rng: [Case(f"serial={s:.3f}, workers={w}", (float(s), int(w)))
                           for s, w in zip(rng.uniform(0.01, 0.9, 6), (1, 2, 3, 8, 64, 1024))],
        observe=Call(), judge=same_value(rtol=1e-6), ...)

Cases with data of their own on each rank: `on_ranks(3, each=[(tensor0,), (tensor1,), (tensor2,)])` calls
`fn(comm, tensor_r)` on rank r. Draw unequal numbers: a case whose inputs are all alike lets wrong answers pass.
An exercise whose answer is a class, or that needs a model set up around it, gives `Call(drive)` or
`Simulate(drive)`, where `drive(fn, *args)` or `drive(fn, comm, *args)` does what is observed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lockstep.exercises.judge import Judge
from lockstep.exercises.observe import Observation


@dataclass(frozen=True)
class Case:
    """One input, named in words for the verdict: "3 ranks, 7 numbers". It holds no expected value.

    A plain function is called `fn(*args, **kwargs)`. With `ranks`, rank r is called
    `fn(comm, *each[r], *args, **kwargs)` in the simulated world, whose keywords are `world`
    (`cluster`, `speed`, `seed`).
    """

    name: str
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    ranks: int | None = None
    each: tuple[tuple[Any, ...], ...] | None = None
    world: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.each is not None and self.ranks != len(self.each):
            raise ValueError(f"case {self.name!r} has {self.ranks} ranks but arguments for {len(self.each)} of them")


def on_ranks(ranks: int, *args: Any, each: Sequence[Sequence[Any]] | None = None, name: str = "", **world: Any) -> Case:
    """A case for a rank function; its name is "3 ranks", and `name` (if any) after a comma.

    each: for each rank the arguments that it alone gets, after `comm` and before `args`.
    world: keywords of `simulate`.
    """
    words = f"{ranks} rank" + ("s" if ranks != 1 else "")
    own = None if each is None else tuple(tuple(one) for one in each)
    return Case(f"{words}, {name}" if name else words, tuple(args), ranks=ranks, each=own, world=world)


Symptom = Callable[[Case, Observation, Observation], bool]


@dataclass(frozen=True)
class Mistake:
    """A wrong solution that students really write, and the sentence it must get.

    name: a few words, shown as a choice by `diagnose()`: "uses the local value".
    function: the wrong solution. It must end by itself.
    sentence: what a teaching assistant would say, in the words of the subject; it points, it does not solve.
    symptom: `symptom(case, seen, expected)` on the smallest failing case, for a mistake that has many forms
        (any deadlock, whole tensors sent). It is asked only when no mistake behaves exactly alike. One with a method
        `beside(theirs, case, seen, expected)` is asked by that: theirs is what the mistake does on that case.
    """

    name: str
    function: Callable[..., Any]
    sentence: str
    symptom: Symptom | None = None


@dataclass(frozen=True, kw_only=True)
class Exercise:
    """What `check`, grading and the tests need to know of one exercise. See the module's docstring.

    id, title, points; function: the name suggested to students; asks: the task in one or two sentences.
    reference, also_right (at least two), stub: functions; the stub raises NotImplementedError.
    cases(rng): draws cases, smallest first, from a `numpy.random.Generator`.
    observe(fn, case): runs in the child. judge(case, seen, expected): runs in the parent.
    hints: two to four, the last one may hold a line of the solution.
    mistakes: at least four.
    forbidden: what may not be called: "comm.all_reduce", or a dotted name such as "torch.nn.functional.conv2d".
    equivalent_mutants: descriptions (see `mutate.py`) of one-operator changes that are still right.
    core: part of the lab's time; otherwise a stretch. version: raise it when verdicts may change.
    """

    id: str
    title: str
    function: str
    asks: str
    reference: Callable[..., Any]
    also_right: tuple[Callable[..., Any], ...]
    stub: Callable[..., Any]
    cases: Callable[[np.random.Generator], Iterable[Case]]
    observe: Callable[[Callable[..., Any], Case], Observation]
    judge: Judge
    hints: tuple[str, ...]
    mistakes: tuple[Mistake, ...]
    points: int = 1
    forbidden: tuple[str, ...] = ()
    equivalent_mutants: tuple[str, ...] = ()
    core: bool = True
    version: int = 1

    def __post_init__(self) -> None:
        if not re.fullmatch(r"\d\d\.\d+", self.id):
            raise ValueError(f"an exercise's id looks like '04.2', not {self.id!r}")

    @property
    def lab(self) -> str:
        """The two digits of its lab: "04"."""
        return self.id[:2]

    def draw(self, seed: int = 0) -> list[Case]:
        """The cases of one seed, smallest first; equal seeds draw equal cases."""
        return list(self.cases(np.random.default_rng(seed)))
