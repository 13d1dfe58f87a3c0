"""What of the library is an answer: functions that refuse while a lab's exercises are graded.

Floor 4, room `course`. A student's process has no `lockstep.exercises` at all; what is listed here are the real
implementations that the labs work towards. "!" spares what they would take along and an exercise hands out.
"""

from __future__ import annotations

from lockstep.exercises.exercise import Exercise

OF_LAB: dict[str, tuple[str, ...]] = {
    "01": ("lockstep.simt.kernels", "lockstep.simt.occupancy.occupancy"),
    "02": ("lockstep.nn.functional", "lockstep.nn.operations", "lockstep.nn.layers"),
    "03": (
        "lockstep.cost.accountant", "lockstep.cost.profile", "lockstep.cost.memory", "lockstep.cost.checkpointing",
        "lockstep.cost.limits", "lockstep.cost.sharded_state", "lockstep.cost.traffic",
    ),
    "04": (
        "lockstep.comm.collectives.direct", "lockstep.comm.collectives.hypercube", "lockstep.comm.collectives.nodes",
        "lockstep.comm.collectives.ring", "lockstep.comm.collectives.tree", "lockstep.comm.predict",
    ),
    "05": ("lockstep.parallel", "lockstep.data.sampling", "lockstep.data.sampler"),
    "06": ("lockstep.parallel", "lockstep.plan", "lockstep.cost.traffic"),
    "07": (
        "lockstep.parallel", "!lockstep.parallel.pipeline.Action", "!lockstep.parallel.pipeline.Overlap",
        "!lockstep.parallel.pipeline.Schedule",
    ),
    "08": (
        "lockstep.parallel", "lockstep.comm.mesh.bytes_by_link", "lockstep.comm.collectives.nodes",
        "lockstep.comm.predict",
        "lockstep.cost.traffic",
    ),
    "09": ("lockstep.parallel", "lockstep.cost.sharded_state", "lockstep.cost.memory", "lockstep.cost.traffic"),
    "10": ("lockstep.compress",),
    "11": (
        "lockstep.trace.path", "lockstep.trace.measures.overlap_share", "lockstep.trace.slack",
        "lockstep.parallel.bucket_plan", "lockstep.parallel.priority", "lockstep.parallel.predict",
        "lockstep.data.prefetch",
    ),
}  # fmt: skip

# Others of the same lab are handed what these have to write.
OF_EXERCISE: dict[str, tuple[str, ...]] = {"08.1": ("lockstep.comm.mesh",)}


def refused(exercise: Exercise) -> tuple[str, ...]:
    """Names for `refuse`: the lab's answers, and the exercise's own forbidden functions."""
    functions = tuple(name for name in exercise.forbidden if not name.startswith("comm."))
    return (*OF_LAB.get(exercise.lab, ()), *OF_EXERCISE.get(exercise.id, ()), *functions)
