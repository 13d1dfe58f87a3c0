"""What ranks need of our libraries is imported once, by the warm parent, and never at the price of a GPU."""

import sys
import types

import pytest

from lockstep.compress.packing import pack
from lockstep.world import forked, launch
from lockstep.world.shipping import pack_and_list


class Was:
    """Arrives as whether a module was there when the call was unpacked."""

    def __init__(self, module):
        self.module = module

    def __reduce__(self):
        return eval, (f"{self.module!r} in __import__('sys').modules",)


@pytest.mark.skipif(sys.platform != "linux", reason="the fork of a warm parent is for Linux")
def test_what_a_call_names_is_there_before_its_ranks_begin():
    # Each rank of every run, and each check, used to import half a second of the library again.
    def program(comm, was_there, function):
        return was_there, function.__module__

    assert (
        launch(program, 2, Was("lockstep.compress.packing"), pack).values == [(True, "lockstep.compress.packing")] * 2
    )


def test_the_modules_of_a_call_are_those_of_its_functions_classes_and_modules():
    def program(comm):
        return pack, types

    call, modules = pack_and_list(program, ([pytest.approx],), {"way": forked.ForkedRanks})
    assert type(call) is bytes
    assert {"lockstep.compress.packing", "types", "lockstep.world.forked"} <= modules


def test_where_numba_may_look_for_a_gpu_the_warm_parent_does_not(monkeypatch):
    assert forked._may_be_imported("lockstep.exercises.trial") and not forked._may_be_imported("student")
    monkeypatch.setitem(sys.modules, "numba", types.ModuleType("numba"))
    assert forked._may_be_imported("lockstep.comm.mesh")
    for name in ("lockstep.exercises.trial", "lockstep.simt", "lockstep.viz.warp"):
        assert not forked._may_be_imported(name)
