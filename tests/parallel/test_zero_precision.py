"""ZeRO in mixed precision: as one process does it in plain torch, in the bytes of the formula, all ranks alike."""

import copy
from functools import partial

import pytest
import torch
from test_zero import mlp, plain_sgd
from torch import nn
from toy_models import TOYS, shards

from lockstep.parallel import ZeRO
from lockstep.world import RankError, launch
from lockstep.world import simulate as simulate_quickly

simulate = partial(simulate_quickly, timeout=60)
LOW = {"bf16": torch.bfloat16, "fp16": torch.float16}
CASES = [(toy, precision, stage) for toy in ("batch norm", "tied", "frozen", "channels last") for precision in LOW
         for stage in (1, 2, 3)]  # fmt: skip
STEPS = 3


def built(name):
    torch.manual_seed(5)
    return TOYS[name].build()


def train_low(comm, cases):
    states = []
    for name, precision, stage in cases:
        zero = ZeRO(built(name), TOYS[name].optimizer, comm, stage, 400, precision)
        for step in range(STEPS):
            images, labels = shards(comm.size, step)[comm.rank]
            nn.functional.cross_entropy(zero(images.float()), labels).backward()
            zero.step()
        states.append(zero.full_state_dict())
    return states


def train_alone(name, precision, p):
    """Plain torch: a model of two bytes, masters in fp32, each rank's images in turn, their mean in two bytes."""
    toy, dtype = TOYS[name], LOW[precision]
    model = built(name)
    masters = [nn.Parameter(p.detach().clone(), p.requires_grad) for p in model.parameters()]
    for module in model.modules():
        if not isinstance(module, nn.BatchNorm2d):
            for parameter in module.parameters(recurse=False):
                parameter.data = parameter.data.to(dtype)
    optimizer = toy.optimizer([master for master in masters if master.requires_grad])
    scale = 2.0**16 if precision == "fp16" else 1.0
    for step in range(STEPS):
        total, before = None, copy.deepcopy(dict(model.named_buffers()))
        buffers = []
        for images, labels in shards(p, step):
            for buffer_name, buffer in model.named_buffers():
                buffer.copy_(before[buffer_name])
            model.zero_grad()
            loss = nn.functional.cross_entropy(model(images.to(dtype)).float(), labels)
            (loss * scale).backward()
            found = [parameter.grad for parameter in model.parameters() if parameter.requires_grad]
            total = found if total is None else [a + b for a, b in zip(total, found, strict=True)]
            buffers.append(copy.deepcopy(dict(model.named_buffers())))
        for master, gradient in zip([master for master in masters if master.requires_grad], total, strict=True):
            master.grad = (gradient / p).float() / scale
        if all(gradient.isfinite().all() for gradient in total):
            optimizer.step()
        else:  # happens here, in fp16: that is a step less
            scale /= 2
        with torch.no_grad():
            for parameter, master in zip(model.parameters(), masters, strict=True):
                parameter.copy_(master)
            for buffer_name, buffer in model.named_buffers():
                values = [each[buffer_name] for each in buffers]
                buffer.copy_(sum(values) / p if buffer.is_floating_point() else values[0])
    exact = {id(parameter): master for parameter, master in zip(model.parameters(), masters, strict=True)}
    state = model.state_dict(keep_vars=True)
    return {name: exact.get(id(value), value).detach().float() for name, value in state.items()}


# Two ranks add in one order only, so they are exact. Three round their sums in two bytes once more than one process.
@pytest.mark.parametrize(("world", "p", "cases"), [(simulate, 1, CASES[::11]), (simulate, 2, CASES),
                                                   (simulate, 3, CASES[::5]), (launch, 2, CASES[2::15])])  # fmt: skip
def test_it_trains_as_one_process_with_masters_in_fp32(world, p, cases):
    ranks = world(train_low, p, cases).values
    for case, states in zip(cases, zip(*ranks, strict=True), strict=True):
        expected, start = train_alone(*case[:2], p), built(case[0]).state_dict()
        for state in states:
            assert all(torch.equal(state[name], states[0][name]) for name in state), case
        for name, value in expected.items():
            if case[0] == "frozen" and name.startswith("conv"):  # what does not learn is rounded, and stays so
                value = value.to(LOW[case[1]]).float()
            near = 4 * torch.finfo(LOW[case[1]]).eps if p > 2 else 1e-6 if "running" in name else 0
            say = partial("{} {}: {}".format, case, name)
            torch.testing.assert_close(states[0][name].float(), value, rtol=near, atol=near, msg=say)
        assert any(not torch.equal(states[0][name], start[name].float()) for name in start)


def one_low_step(comm, stage, precision):
    zero = ZeRO(mlp(), partial(torch.optim.Adam, lr=0.1), comm, stage, 2 * 992, precision)
    (zero(torch.ones(2, 31)).square().mean() * 1e-3).backward()
    zero.step()
    sent, messages = comm.traffic.bytes_sent, comm.traffic.messages_sent
    (zero(torch.ones(2, 31)).square().mean() * 1e-3).backward()
    held = zero.bytes()
    zero.step()
    return held, comm.traffic.bytes_sent - sent, comm.traffic.messages_sent - messages


@pytest.mark.parametrize("ranks", [3])
def test_bytes_held_and_sent_are_two_and_two_and_twelve(ranks):
    """P = 6 layers of 992; Rajbhandari et al. 2020, section 3.1: 2 P parameters, 2 P gradients, 12 P for Adam."""
    whole, shard = 6 * ranks * -(-992 // ranks), 6 * -(-992 // ranks)
    for precision, stage in [("fp16", 1), ("bf16", 2), ("bf16", 3)]:
        for held, sent, messages in simulate(one_low_step, ranks, stage, precision).values:
            assert held["parameters"] == 2 * (shard if stage == 3 else whole)
            assert held["gradients"] == 2 * (shard if stage > 1 else whole)
            assert held["optimizer"] == 12 * shard + 6 * 4  # and for each unit Adam's count of its steps
            rounds = 3 if stage == 3 else 2
            agreed = 8 if precision == "fp16" else 0  # one number: whether any rank has overflowed
            assert sent <= rounds * 2 * whole * (ranks - 1) // ranks + 2 * (ranks - 1) * agreed
            assert sent >= rounds * 2 * whole * (ranks - 1) // ranks
            assert messages - rounds * 6 * (ranks - 1) == (2 * (ranks - 1) if agreed else 0)


def test_batch_norms_between_layers_do_not_cut_units_apart():
    """Batch norm stays in fp32, and once every change of dtype began a new unit: 40 of them for ResNet-18."""

    def program(comm, stage):
        model = nn.Sequential(*(layer for _ in range(4) for layer in (nn.Linear(8, 8), nn.BatchNorm1d(8))))
        return len(ZeRO(model, plain_sgd, comm, stage, precision="bf16").units)

    assert [simulate(program, 2, stage).values for stage in (1, 2, 3)] == [[2, 2]] * 3


def overflowing(comm, stage, clip):
    """(whether it stepped, scale, whether weights moved) of steps of which the first overflows on the last rank only."""
    zero = ZeRO(mlp(), plain_sgd, comm, stage, 3000, "fp16")
    zero.loss_scale.interval = 2
    before, found = zero.full_state_dict()["0.weight"], []
    for step in range(3):
        huge = 1e9 if step == 0 and comm.rank == comm.size - 1 else 1e-3
        (zero(torch.ones(1, 31)).mean() * huge).backward()
        if clip:
            norm = zero.clip_grad_norm_(1e-5)
        now = comm.traffic.messages_sent
        stepped = zero.step()
        agreed = comm.traffic.messages_sent - now  # in stage 3 nothing else is sent in `step`
        after = zero.full_state_dict()["0.weight"]
        found.append((stepped, zero.loss_scale.value, not torch.equal(before, after), agreed))
        before = after
    return found, zero.loss_scale.skipped, norm.item() if clip else None, after


def test_a_gradient_that_overflows_on_one_rank_is_a_step_less_for_all():
    """Once agreed upon by clipping, it is not agreed upon again."""
    for stage, clip in [(1, False), (2, True), (3, False), (3, True)]:
        values = simulate(overflowing, 3, stage, clip).values
        for found, skipped, norm, after in values:
            assert [step[:3] for step in found] == [
                (False, 2.0**15, False),
                (True, 2.0**15, True),
                (True, 2.0**16, True),
            ]
            assert skipped == 1 and torch.equal(after, values[0][3])
            if stage == 3:
                assert [step[3] for step in found] == [0 if clip else 4] * 3
            assert norm is None or 1e-5 < norm < 1e-2  # of the gradients without their scale


def test_the_clipped_norm_is_that_of_gradients_without_their_scale():
    def program(comm, precision):
        zero = ZeRO(mlp(), plain_sgd, comm, 2, 3000, precision)
        if zero.loss_scale:
            zero.loss_scale.value = 2.0**8
        before = zero.full_state_dict()
        zero(torch.ones(2, 31)).square().sum().backward()
        norm = zero.clip_grad_norm_(0.5)
        zero.step()
        after = zero.full_state_dict()
        return norm, sum((after[name] - before[name]).double().square().sum() for name in after).sqrt()

    model = mlp()
    model(torch.ones(2, 31)).square().sum().backward()
    expected = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    for precision in LOW:
        for norm, moved in simulate(program, 2, precision).values:
            assert norm == pytest.approx(expected.item(), rel=0.02)
            assert moved.item() == pytest.approx(0.1 * 0.5, rel=1e-4)  # the learning rate times the largest norm


def test_offload_to_the_cpu_changes_nothing_on_a_cpu():
    def program(comm, offload):
        zero = ZeRO(mlp(), partial(torch.optim.Adam, lr=0.1), comm, 3, 3000, offload=offload)
        zero(torch.ones(2, 31)).square().sum().backward()
        zero.step()
        return zero.full_state_dict()["0.weight"], zero.bytes()

    (one, held), (other, the_same) = (simulate(program, 2, offload).values[0] for offload in (False, True))
    assert torch.equal(one, other) and held == the_same


def diverged(comm):
    zero = ZeRO(mlp(), plain_sgd, comm, 1, precision="fp16")
    zero.loss_scale.value = 2.0
    for _ in range(2):
        (zero(torch.ones(1, 31)).sum() * float("inf")).backward()
        zero.step()


@pytest.mark.parametrize(
    ("program", "says"),
    [
        (
            lambda comm: ZeRO(mlp(), plain_sgd, comm, precision="int8"),
            "precision is 'int8': it is one of fp32, bf16, fp16",
        ),
        (lambda comm: ZeRO(mlp().double(), plain_sgd, comm, precision="bf16"), "0.weight is in torch.float64"),
        (lambda comm: ZeRO(mlp(), plain_sgd, comm).clip_grad_norm_(0), "max_norm is 0"),
        (diverged, "loss scale of 1.*training has diverged"),
    ],
)
def test_what_cannot_be_is_a_sentence(program, says):
    with pytest.raises(RankError, match=says):
        simulate(lambda comm: program(comm) and None, 2)
