"""PipeDream on ranks equals a sequential run with delayed weights, bit for bit in float64."""

import copy

import pytest
import torch
from torch import nn
from torch.func import functional_call
from torch.nn import functional as F

from lockstep.parallel.pipeline import InvalidSchedule, Pipeline, Schedule, one_f_one_b, pipedream
from lockstep.world import launch, simulate

MICRO_BATCHES, STEPS = 6, 2


def stages(p):
    torch.manual_seed(1)
    layers = [nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.BatchNorm2d(3), nn.Tanh())]
    layers += [nn.Sequential(nn.Conv2d(3, 3, 3, padding=1), nn.ReLU()) for _ in range(p - 2)]
    layers += [nn.Sequential(nn.Flatten(), nn.Linear(3 * 16, 4))]
    layers[0][0].bias.requires_grad_(False)
    return [layer.double() for layer in layers]


def optimizer(parameters):
    return torch.optim.SGD(parameters, 0.2, momentum=0.9, weight_decay=0.01)


def batch(step):
    generator = torch.Generator().manual_seed(step)
    images = torch.randn(2 * MICRO_BATCHES, 2, 4, 4, dtype=torch.float64, generator=generator)
    return images, torch.randint(4, (2 * MICRO_BATCHES,), generator=generator)


def train(comm, schedule):
    """(losses, {chunk: state}, version log) of this rank after two steps."""
    model = stages(comm.size)
    pipeline = Pipeline(model, comm, schedule, F.cross_entropy, optimizer=optimizer)
    losses, log = [], []
    for step in range(STEPS):
        pipeline.step(*batch(step))
        losses += [loss.item() for loss in pipeline.losses] if comm.rank == comm.size - 1 else []
        log += pipeline.versions
    own = {c: copy.deepcopy(model[c].state_dict()) for c, rank in schedule.placement.items() if rank == comm.rank}
    pipeline.copy_to_all()
    return losses, own, log, [stage.state_dict() for stage in model]


def delayed(p, vertical_sync):
    """The oracle: one process, one micro-batch at a time; stage s uses its weights of p - 1 - s updates ago.

    w(t+1) = w(t) - v grad f(w_1(t-n+1), ..., w_n(t)); with vertical sync w_s(t-n+1) on every stage. Each step begins
    with an empty pipeline, so nothing is older than the step. Narayanan et al. 2019, section 3.3.
    """
    model = stages(p)
    optimizers = [optimizer(stage.parameters()) for stage in model]
    losses = []
    for step in range(STEPS):
        history = [[{n: q.detach().clone() for n, q in stage.named_parameters()}] for stage in model]
        images, labels = batch(step)
        for t, (x, y) in enumerate(zip(images.split(2), labels.split(2), strict=True)):
            used = []
            for s, stage in enumerate(model):
                weights = history[s][max(0, t - (p - 1 - (0 if vertical_sync else s)))]
                used.append(
                    {n: w.clone().requires_grad_() for n, w in weights.items() if stage.get_parameter(n).requires_grad}
                )
                x = functional_call(stage, used[-1], (x,))
            loss = F.cross_entropy(x, y)
            loss.backward()
            losses.append(loss.item())
            for s, stage in enumerate(model):
                for name, weight in used[s].items():
                    stage.get_parameter(name).grad = weight.grad
                optimizers[s].step()
                history[s].append({n: q.detach().clone() for n, q in stage.named_parameters()})
    return losses, [stage.state_dict() for stage in model]


def judge(values, p, vertical_sync):
    losses, states = delayed(p, vertical_sync)
    assert values[-1][0] == losses
    for rank, (_, own, log, everything) in enumerate(values):
        for name, tensor in states[rank].items():
            assert torch.equal(own[rank][name], tensor), f"rank {rank}: {name}"
        for mine, wanted in zip(everything, states, strict=True):
            assert all(torch.equal(mine[name], wanted[name]) for name in wanted)
        assert [use.micro_batch for use in log] == [*range(MICRO_BATCHES)] * STEPS
        for at, use in enumerate(log):
            start = at // MICRO_BATCHES * MICRO_BATCHES
            assert (
                use.forward
                == use.backward
                == start + max(0, use.micro_batch - (p - 1 - (0 if vertical_sync else rank)))
            )
            assert (use.chunk, use.updated) == (rank, at)
        # Stage s of n, counted from 0, keeps n - s versions; all stages keep n with vertical sync.
        assert max(use.held for use in log) == (p if vertical_sync else p - rank)


def train_both(comm):
    return [train(comm, pipedream(comm.size, MICRO_BATCHES, vertical_sync)) for vertical_sync in (False, True)]


@pytest.mark.parametrize("world, p", [(launch, 3), (simulate, 2), (simulate, 4)])
def test_ranks_equal_a_sequential_delayed_run(world, p):
    values = world(train_both, p, timeout=60).values
    for number, vertical_sync in enumerate((False, True)):
        judge([value[number] for value in values], p, vertical_sync)


def test_without_staleness_it_is_plain_training():
    def sequential(comm):
        rows = [["0F0", "0B0", "0U0", "0F1", "0I1", "0W1", "0U1"]]
        return train_few(comm, Schedule.of(rows))

    def train_few(comm, schedule):
        model = stages(2)[:1]
        head = nn.Sequential(*model, nn.Flatten(), nn.Linear(48, 4).double())
        start = copy.deepcopy(head)
        Pipeline([head], comm, schedule, F.cross_entropy, optimizer=optimizer).step(*batch(0))
        return start, head.state_dict()

    ((start, state),) = simulate(sequential, 1).values
    plain = optimizer(start.parameters())
    for x, y in zip(*(part.split(MICRO_BATCHES) for part in batch(0)), strict=True):
        plain.zero_grad()
        F.cross_entropy(start(x), y).backward()
        plain.step()
    assert all(torch.allclose(state[name], wanted, rtol=1e-12) for name, wanted in start.state_dict().items())


def test_vertical_sync_needs_what_the_first_chunk_had():
    rows = [["0F0", "0B0", "0U0", "0F1", "0B1", "0U1"], ["1F0", "1B0", "1F1", "1B1", "1U0", "1U1"]]
    actions = Schedule.of(rows).actions
    assert Schedule("late", 2, 2, actions).prove()
    with pytest.raises(InvalidSchedule, match="meets version 1 on chunk 0, and chunk 1 has made only 0 updates"):
        Schedule("late", 2, 2, actions, vertical_sync=True).prove().require()
    with pytest.raises(ValueError, match="has no updates"):
        simulate_error(one_f_one_b(1, 2))


def simulate_error(schedule):
    def program(comm):
        Pipeline([nn.Linear(1, 1)], comm, schedule, F.mse_loss, optimizer=optimizer)

    try:
        simulate(program, 1)
    except Exception as error:
        raise error.cause from None
