"""Draws the README's picture from a real run on this machine: `.venv/bin/python docs/timeline.py`."""

from pathlib import Path

import torch

from lockstep import viz
from lockstep.world import launch


def uneven(comm):
    square = torch.ones(400, 400)
    with comm.span("compute"):
        for _ in range(20 * (comm.rank + 1)):
            square = square @ square / 400
    return comm.all_reduce(square.sum())


if __name__ == "__main__":
    launch(uneven, 4)  # the first run also starts the machinery; the second shows only the work
    figure = viz.timeline(launch(uneven, 4), title="Four processes compute, then add up their results")
    print(figure.save(Path(__file__).with_name("timeline.png")), figure.alt, sep="\n")
