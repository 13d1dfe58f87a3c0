"""Exercise 05.6: what a parameter server does with a gradient that comes late.

Floor 4, room `exercises`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lockstep.exercises.exercise import Case, Exercise, Mistake
from lockstep.exercises.judge import Finding, same_value
from lockstep.exercises.lab05.likeness import by_first_failure
from lockstep.exercises.observe import Call, Observation


@dataclass
class ServerState:
    """What the server holds: the parameters, how many updates have made them, and the learning rate."""

    parameters: Tensor
    version: int
    lr: float


def async_step(server, gradient, version):
    staleness = server.version - version
    server.parameters -= server.lr * gradient
    server.version += 1
    return staleness


def async_step_with_new_tensor(server, gradient, version):
    server.parameters = server.parameters - gradient * server.lr
    server.version, missed = server.version + 1, server.version - version
    return torch.tensor(missed)


def async_step_with_add(server, gradient, version):
    server.version += 1
    server.parameters.add_(gradient, alpha=-server.lr)
    return server.version - 1 - version


def async_step_stub(server, gradient, version):
    raise NotImplementedError("apply the gradient, raise the version, return the staleness")


def counts_its_own_update(server, gradient, version):
    server.parameters -= server.lr * gradient
    server.version += 1
    return server.version - version


def counts_backwards(server, gradient, version):
    staleness = version - server.version
    server.parameters -= server.lr * gradient
    server.version += 1
    return staleness


def forgets_the_version(server, gradient, version):
    server.parameters -= server.lr * gradient
    return server.version - version


def goes_back_in_time(server, gradient, version):
    staleness = server.version - version
    server.parameters -= server.lr * gradient
    server.version = version + 1
    return staleness


def climbs(server, gradient, version):
    staleness = server.version - version
    server.parameters += server.lr * gradient
    server.version += 1
    return staleness


def throws_stale_ones_away(server, gradient, version):
    staleness = server.version - version
    if staleness == 0:
        server.parameters -= server.lr * gradient
        server.version += 1
    return staleness


def shrinks_stale_ones(server, gradient, version):
    staleness = server.version - version
    server.parameters -= server.lr / (1 + staleness) * gradient
    server.version += 1
    return staleness


def forgets_the_rate(server, gradient, version):
    staleness = server.version - version
    server.parameters -= gradient
    server.version += 1
    return staleness


def changes_the_gradient(server, gradient, version):
    staleness = server.version - version
    gradient *= server.lr
    server.parameters -= gradient
    server.version += 1
    return staleness


def returns_the_new_version(server, gradient, version):
    server.parameters -= server.lr * gradient
    server.version += 1
    return server.version


def served(fn: Callable[..., Any], gradients: Tensor, order: tuple[int, ...], lr: float) -> dict[str, Any]:
    """Workers take the parameters, then hand in gradients in `order`, each one taking the new parameters after it."""
    server = ServerState(torch.zeros_like(gradients[0]), 0, lr)
    taken = dict.fromkeys(order, 0)
    result = {"staleness": [], "version": [], "parameters": [], "gradient": []}
    for worker, gradient in zip(order, gradients, strict=True):
        staleness = fn(server, gradient, taken[worker])
        result["gradient"].append(gradient.clone())
        taken[worker] = server.version
        result["staleness"].append(staleness)
        result["version"].append(server.version)
        result["parameters"].append(server.parameters.clone())
    return result


def right_service(case: Case, seen: Observation, expected: Observation) -> Finding | None:
    found = same_value(rtol=1e-5, atol=1e-7)(case, seen, expected)
    if found is None:
        return None
    place = re.search(r" at \['(\w+)'\]\[(\d+)\](?:\[.*?\])?", found.sentence)
    if place is None:
        return found
    said = found.sentence.replace(place[0], "")
    return replace(found, sentence=f"The {place[1]} after update {int(place[2]) + 1}: {said[0].lower()}{said[1:]}")


def cases(rng: np.random.Generator) -> Iterator[Case]:
    for order in ((0, 0), (0, 1, 0, 1), (0, 1, 2, 0, 1, 2), (0, 0, 0, 1, 0, 1)):
        gradients = torch.tensor(rng.normal(size=(len(order), 3)), dtype=torch.float32)
        words = "1 worker" if len(set(order)) == 1 else f"{len(set(order))} workers"
        yield Case(f"{words}, gradients in the order {', '.join(map(str, order))}", (gradients, order, 0.5))


OBSERVE, JUDGE = Call(served), right_service

ASYNC = Exercise(
    id="05.6",
    title="A gradient that comes late",
    function="async_step",
    points=1,
    core=False,
    asks=(
        "A worker computed `gradient` with the parameters of `version`. Apply it to `server.parameters` as plain SGD "
        "does, with `server.lr`, however late it comes; add one to `server.version`; return its staleness: how many "
        "updates the server has made since that version, this one not counted. Leave `gradient` as it is."
    ),
    reference=async_step,
    also_right=(async_step_with_new_tensor, async_step_with_add),
    stub=async_step_stub,
    cases=cases,
    observe=OBSERVE,
    judge=JUDGE,
    hints=(
        "The server counts its updates. If it is at version 7 and the gradient belongs to version 5, how many updates "
        "has the worker missed?",
        "Work out the staleness before you change anything. Then take `server.lr` times the gradient off the "
        "parameters and count the update.",
        "`staleness = server.version - version` comes first.",
    ),
    mistakes=by_first_failure(
        OBSERVE,
        JUDGE,
        (
            Mistake(
                "counts its own update",
                counts_its_own_update,
                "Your staleness is one too many: it counts the update that you have just made. A gradient of the newest "
                "parameters has staleness 0.",
            ),
            Mistake(
                "counts backwards",
                counts_backwards,
                "Your staleness is negative. It is how far the server is ahead of the gradient: the server's version less "
                "the gradient's.",
            ),
            Mistake(
                "forgets the version",
                forgets_the_version,
                "The version stays as it is, so every gradient looks fresh. Each update makes a new version.",
            ),
            Mistake(
                "goes back in time",
                goes_back_in_time,
                "After a late gradient the version goes down. It counts the updates that the server has made, whatever "
                "version the gradient belongs to.",
            ),
            Mistake(
                "climbs",
                climbs,
                "The parameters move along the gradient, so the loss grows. SGD subtracts.",
            ),
            Mistake(
                "throws stale gradients away",
                throws_stale_ones_away,
                "Late gradients are thrown away. Then a slow worker never contributes anything. Asynchronous SGD uses "
                "them all.",
            ),
            Mistake(
                "shrinks stale gradients",
                shrinks_stale_ones,
                "You make late gradients smaller. That is staleness-aware SGD (Zhang et al. 2016), a good idea, but here "
                "every gradient counts in full.",
            ),
            Mistake(
                "forgets the learning rate",
                forgets_the_rate,
                "The whole gradient is subtracted. A step of SGD is the gradient times the learning rate.",
            ),
            Mistake(
                "changes the worker's gradient",
                changes_the_gradient,
                "The parameters are right, but the gradient has changed under the worker's hands: `*=` writes into the "
                "worker's own tensor. Multiply into a new one.",
            ),
            Mistake(
                "returns the version",
                returns_the_new_version,
                "You return the version. The staleness is a difference of versions: of the server's and of the gradient's.",
            ),
        ),
    ),
)
