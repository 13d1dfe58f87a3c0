"""The later exercises of lab 10, from 10.5 on; as `newcomer_10.py`, whose `FOUND` and `RIGHT` these are more of."""

import math

import torch

# 10.5


def thin(basis=lambda p: torch.linalg.qr(p)[0], start=lambda q, p: q, dense=False):
    def power_sgd(comm, m, q):
        p = comm.all_reduce(m @ q) / comm.size
        p = basis(p)
        new = comm.all_reduce(m.T @ p) / comm.size
        mean = p @ new.T
        if dense:
            mean = comm.all_reduce(mean, op="mean")
        return mean, start(new, p)

    return power_sgd


def gram_schmidt_forgets_to_divide(p):
    for j in range(p.shape[1]):
        for i in range(j):
            p[:, j] -= (p[:, i] @ p[:, j]) / (p[:, i] @ p[:, i]) * p[:, i]
    return p


def by_cholesky(p):
    """Right, as any orthonormal basis is."""
    return torch.linalg.solve_triangular(torch.linalg.cholesky(p.T @ p), p.T, upper=False).T


# 10.6


def iterated(turns, step=1.0, keep=lambda x, k: x.abs().topk(k)[1]):
    def sense_and_recover(comm, g, phi, k):
        y = comm.all_reduce(phi @ g) / comm.size
        x = torch.zeros(phi.shape[1])
        for _ in range(turns):
            z = x + step * (phi.T @ (y - phi @ x))
            x = torch.zeros_like(z).index_copy_(0, keep(z, k), z[keep(z, k)])
        return x

    return sense_and_recover


def least_squares_once(comm, g, phi, k):
    y = comm.all_reduce(phi @ g, op="mean")
    places = (phi.T @ y).abs().topk(k)[1]
    x = torch.zeros_like(g)
    x[places] = torch.linalg.lstsq(phi[:, places], y[:, None]).solution.flatten()
    return x


def by_pursuit(comm, g, phi, k):
    """Right: places by a step, values by least squares."""
    y, x = comm.all_reduce(phi @ g, op="mean"), torch.zeros_like(g)
    for _ in range(12):
        places = (x + phi.T @ (y - phi @ x)).abs().topk(k)[1]
        x = torch.zeros_like(g)
        x[places] = torch.linalg.lstsq(phi[:, places], y[:, None]).solution[:, 0]
    return x


# 10.7


def paid(gathered=lambda p: p - 1, pair=8, limit=None):
    def pays_off(n, ranks, k, method, seconds, bandwidth):
        ring = 2 * (ranks - 1) / ranks
        dense, sent = ring * 4 * n, gathered(ranks) * pair * k if method == "top-k" else ring * 4 * k
        best = limit(dense, sent, seconds) if limit else max(0, dense - sent) / seconds if seconds else math.inf
        return {"dense": dense / bandwidth, "compressed": sent / bandwidth + seconds, "break_even": best}

    return pays_off


# 10.8


def averaged(due, write=None):
    def local_sgd(comm, parameters, step, steps, every):
        for i in range(steps):
            step(i)
            if due(i, steps, every):
                for at, p in enumerate(parameters):
                    mean = comm.all_reduce(p.detach().clone(), op="mean")
                    if write:
                        write(parameters, at, mean)
                    else:
                        p.data = mean

    return local_sgd


def right_time(i, steps, every):
    return i % every == every - 1 or i == steps - 1


def without_a_wait(comm, parameters, step, steps, every):
    for i in range(steps):
        step(i)
        if right_time(i, steps, every):
            for p in parameters:
                comm.all_reduce(p.data, op="mean", async_op=True)


def one_after_the_other(comm, parameters, step, steps, every):
    """Right: all on their way at once."""
    for i in range(steps):
        step(i)
        if right_time(i, steps, every):
            for handle in [comm.all_reduce(p.data, op="mean", async_op=True) for p in parameters]:
                handle.wait()


def rebind(parameters, at, mean):
    parameters[at] = torch.nn.Parameter(mean)


FOUND = [
    ("10.5", thin(gram_schmidt_forgets_to_divide), ["not orthonormal"]),
    ("10.5", thin(torch.nn.functional.normalize), ["-right angles"]),
    ("10.5", thin(dense=True), ["bytes"]),
    ("10.5", thin(start=lambda q, p: p), ["`Q` that fits"]),
    ("10.6", iterated(2), ["come to rest"]),
    ("10.6", iterated(10), ["come to rest"]),  # Passed, where the text says "until nothing changes".
    ("10.6", iterated(30, keep=lambda x, k: x.topk(k)[1]), ["magnitude"]),
    ("10.6", least_squares_once, ["fits the measurements"]),
    ("10.7", paid(pair=4), ["its index"]),
    ("10.7", paid(gathered=lambda p: 2 * (p - 1) / p), ["nothing to add"]),
    ("10.7", paid(limit=lambda d, s, t: max(0, d - s) / t), ["divide by zero"]),
    ("10.7", paid(limit=lambda d, s, t: math.inf if d <= s or not t else (d - s) / t), ["below no bandwidth"]),
    ("10.7", paid(limit=lambda d, s, t: (d - s) / t if t and d > s else 0), ["on every link"]),
    ("10.8", without_a_wait, ["before wait()"]),
    ("10.8", averaged(lambda i, steps, every: i % every == 0), ["first step"]),
    ("10.8", averaged(lambda i, steps, every: i % every == every - 1), ["does not divide"]),
    ("10.8", averaged(right_time, rebind), ["never reaches the model"]),
]

RIGHT = [
    ("10.5", thin(lambda p: torch.linalg.svd(p, False)[0])),
    ("10.5", thin(by_cholesky)),
    ("10.6", by_pursuit),
    ("10.6", iterated(30)),
    ("10.6", iterated(30, step=1.3)),
    ("10.8", one_after_the_other),
    ("10.8", averaged(right_time)),
]
