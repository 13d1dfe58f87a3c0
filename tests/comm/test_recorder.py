"""What a rank keeps of its run, where a call was made, and what a call that broke off says."""

import pickle

import torch

from lockstep.comm import PeerLost
from lockstep.comm.callsite import call_site
from lockstep.comm.recorder import Recorder
from lockstep.comm.torch_collectives import broadcast_tree
from lockstep.comm.traffic import Traffic
from lockstep.world import launch


def test_a_recorder_travels_and_forgets_what_is_beyond_its_limit():
    recorder = Recorder(3, clock=lambda: 0.0, limit=4)
    recorder.add_span("compute", "layer", 1.0, 2.0, micro_batch=5)
    recorder.add_sent(1, ("", 0), 8, 1.5)
    recorder.add_received(1, ("", 0), 8, 1.5, 1.75)
    copy = pickle.loads(pickle.dumps(recorder))
    assert (copy.spans, copy.sent, copy.received) == (recorder.spans, recorder.sent, recorder.received)
    assert copy.spans[0].rank == 3 and copy.spans[0].seconds == 1.0 and copy.receive_posts == [1.5]
    for _ in range(3):
        recorder.add_span("compute", "more", 2.0, 3.0)
    assert len(recorder.spans) == 2 and recorder.dropped == 2


def test_the_site_of_a_call_is_the_users_line():
    class Module(torch.nn.Module):
        def forward(self, x):
            return call_site()

    file, line = Module()(None)  # the frames between are torch's
    assert file == __file__
    assert open(file).read().splitlines()[line - 1].strip() == "return call_site()"


def test_traffic_adds_up():
    traffic = Traffic()
    for size in (8, 0, 4):
        traffic.count_sent(2, size)
    traffic.count_received(5)
    traffic.count_nominal("all_reduce", 7)
    traffic.count_nominal("all_reduce", 7)
    assert traffic == Traffic(3, 12, 1, 5, {2: (3, 12)}, {"all_reduce": 14})


def test_the_tree_of_a_broadcast_reaches_everyone_once():
    for p in range(1, 10):
        for root in range(p):
            reached = [child for rank in range(p) for child in broadcast_tree(rank, root, p)[1]]
            assert sorted([*reached, root]) == list(range(p))
            for rank in range(p):
                above, _ = broadcast_tree(rank, root, p)
                assert (above[-1] if above else rank) == root
                if above:
                    assert rank in broadcast_tree(above[0], root, p)[1]


def test_a_peer_that_leaves_is_named_so():
    def program(comm):
        comm.barrier()
        if comm.rank == 1:
            torch.distributed.destroy_process_group()
            return "left"
        try:
            comm.recv(torch.ones(1), 1)
        except PeerLost as error:
            return str(error)

    text, left = launch(program, 2, timeout=30).values
    assert left == "left"
    assert text.startswith("Rank 0: recv of float32[1] from rank 1 broke off, because")
