"""03.6 `what_limits`: computation, memory or network.

Floor 4, room `exercises`. Williams, Waterman, Patterson 2009, with the network as a third roof.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from lockstep.exercises.exercise import Case, Exercise, Mistake
from lockstep.exercises.lab03.words import by_name, by_wrong_number
from lockstep.exercises.observe import Call


def what_limits(macs, memory_bytes, network_bytes, flop_rate, memory_bandwidth, network_bandwidth):
    seconds = {
        "computation": 2 * macs / flop_rate,
        "memory": memory_bytes / memory_bandwidth,
        "network": network_bytes / network_bandwidth,
    }
    limit = max(seconds, key=seconds.get)
    return limit, seconds[limit]


def by_sorting_pairs(macs, memory_bytes, network_bytes, flop_rate, memory_bandwidth, network_bandwidth):
    pairs = [
        (macs / (flop_rate / 2), "computation"),
        (memory_bytes / memory_bandwidth, "memory"),
        (network_bytes / network_bandwidth, "network"),
    ]
    seconds, name = sorted(pairs)[-1]
    return [name, seconds]


def by_comparing(macs, memory_bytes, network_bytes, flop_rate, memory_bandwidth, network_bandwidth):
    computing, moving, sending = (
        (macs + macs) / flop_rate, memory_bytes / memory_bandwidth, network_bytes / network_bandwidth
    )  # fmt: skip
    if computing >= moving and computing >= sending:
        return "computation", computing
    return ("memory", moving) if moving >= sending else ("network", sending)


def what_limits_stub(macs, memory_bytes, network_bytes, flop_rate, memory_bandwidth, network_bandwidth):
    raise NotImplementedError('"computation", "memory" or "network", and the seconds it takes')


def takes_macs_for_flops(macs, memory_bytes, network_bytes, flop_rate, memory_bandwidth, network_bandwidth):
    return what_limits(macs / 2, memory_bytes, network_bytes, flop_rate, memory_bandwidth, network_bandwidth)


def takes_the_fastest(macs, memory_bytes, network_bytes, flop_rate, memory_bandwidth, network_bandwidth):
    seconds = {
        "computation": 2 * macs / flop_rate,
        "memory": memory_bytes / memory_bandwidth,
        "network": network_bytes / network_bandwidth,
    }
    limit = min(seconds, key=seconds.get)
    return limit, seconds[limit]


def adds_them_up(macs, memory_bytes, network_bytes, flop_rate, memory_bandwidth, network_bandwidth):
    limit, _ = what_limits(macs, memory_bytes, network_bytes, flop_rate, memory_bandwidth, network_bandwidth)
    seconds = 2 * macs / flop_rate + memory_bytes / memory_bandwidth + network_bytes / network_bandwidth
    return limit, seconds


def compares_amounts(macs, memory_bytes, network_bytes, flop_rate, memory_bandwidth, network_bandwidth):
    amounts = {"computation": 2 * macs, "memory": memory_bytes, "network": network_bytes}
    rates = {"computation": flop_rate, "memory": memory_bandwidth, "network": network_bandwidth}
    limit = max(amounts, key=amounts.get)
    return limit, amounts[limit] / rates[limit]


def compares_rates(macs, memory_bytes, network_bytes, flop_rate, memory_bandwidth, network_bandwidth):
    return "network", network_bytes / network_bandwidth


def leaves_the_network_out(macs, memory_bytes, network_bytes, flop_rate, memory_bandwidth, network_bandwidth):
    return what_limits(macs, memory_bytes, 0, flop_rate, memory_bandwidth, network_bandwidth)


def leaves_the_memory_out(macs, memory_bytes, network_bytes, flop_rate, memory_bandwidth, network_bandwidth):
    return what_limits(macs, 0, network_bytes, flop_rate, memory_bandwidth, network_bandwidth)


def network_in_bits(macs, memory_bytes, network_bytes, flop_rate, memory_bandwidth, network_bandwidth):
    return what_limits(macs, memory_bytes, 8 * network_bytes, flop_rate, memory_bandwidth, network_bandwidth)


def multiplies(macs, memory_bytes, network_bytes, flop_rate, memory_bandwidth, network_bandwidth):
    return what_limits(macs, memory_bytes, network_bytes, 1 / flop_rate, 1 / memory_bandwidth, 1 / network_bandwidth)


def turns_the_seconds_over(macs, memory_bytes, network_bytes, flop_rate, memory_bandwidth, network_bandwidth):
    limit, seconds = what_limits(macs, memory_bytes, network_bytes, flop_rate, memory_bandwidth, network_bandwidth)
    return limit, 1 / seconds


def name_only(macs, memory_bytes, network_bytes, flop_rate, memory_bandwidth, network_bandwidth):
    return what_limits(macs, memory_bytes, network_bytes, flop_rate, memory_bandwidth, network_bandwidth)[0]


def cases(rng: np.random.Generator) -> Iterator[Case]:
    giga, tera = 1e9, 1e12
    fixed = (
        # twice as many FLOPs as MACs decide here
        ("an A100 in float32, 32 images", 390 * giga, 50 * giga, 0.18 * giga, 19.5 * tera, 2039 * giga, 25 * giga),
        ("an A100 in bfloat16, 32 images", 390 * giga, 25 * giga, 0.09 * giga, 312 * tera, 2039 * giga, 25 * giga),
        ("the same on 1 Gbit/s", 390 * giga, 25 * giga, 0.09 * giga, 312 * tera, 2039 * giga, 0.125 * giga),
        ("one image on 10 Gbit/s", 12 * giga, 1.6 * giga, 0.18 * giga, 19.5 * tera, 2039 * giga, 1.25 * giga),
        ("no network", 9 * giga, 40 * giga, 0.0, 8.1 * tera, 320 * giga, 1.25 * giga),
        ("a close one", 100 * giga, 24 * giga, 0.9 * giga, 10 * tera, 1500 * giga, 50 * giga),
    )
    drawn = [
        (
            f"drawn {i}", *(float(f"{n:.3g}") for n in (
                10 ** rng.uniform(10, 13), 10 ** rng.uniform(9, 11), 10 ** rng.uniform(7, 9.5),
                10 ** rng.uniform(13, 14.5), 10 ** rng.uniform(11.5, 12.5), 10 ** rng.uniform(8, 11),
            )),
        )
        for i in range(1, 7)
    ]  # fmt: skip
    for name, macs, memory, network, flops, memory_rate, network_rate in (*fixed, *drawn):
        words = f"{name}: {macs:.3g} multiply-adds, {memory:.3g} bytes of memory, {network:.3g} bytes sent"
        yield Case(words, (macs, memory, network, flops, memory_rate, network_rate))


JUDGE = by_name("what limits it", "the seconds")

LIMITS = Exercise(
    id="03.6",
    title="What limits a step",
    function="what_limits",
    points=2,
    asks=(
        'Return a pair: "computation", "memory" or "network", whichever needs the most time, and its seconds. Rates are '
        "FLOPs per second and bytes per second; a multiply-add is two FLOPs."
    ),
    reference=what_limits,
    also_right=(by_sorting_pairs, by_comparing),
    stub=what_limits_stub,
    cases=cases,
    observe=Call(),
    judge=JUDGE,
    hints=(
        "An amount divided by its rate is a time. How many amounts are there, and in which unit is each rate?",
        "The multiply-adds come in another unit than the rate of the processor, which counts FLOPs: two for each.",
        "Put the three times into a dictionary; `max(seconds, key=seconds.get)` is the name of the largest.",
    ),
    mistakes=by_wrong_number(
        (
            Mistake(
                "counts MACs as FLOPs",
                takes_macs_for_flops,
                "You divide multiply-adds by a rate of FLOPs. A multiply-add is two of them, so computing takes twice as "
                "long as you say.",
            ),
            Mistake(
                "takes the one that needs the least time",
                takes_the_fastest,
                "That is the one that needs the least time. The step waits for the slowest.",
            ),
            Mistake(
                "adds the three times up",
                adds_them_up,
                "Your seconds are the sum of all three. If they run at the same time, the step takes as long as the longest; "
                "that is what is asked for.",
            ),
            Mistake(
                "compares the amounts, not the times",
                compares_amounts,
                "You compare amounts. There are always more FLOPs than bytes, but a processor is faster at them: compare "
                "seconds.",
            ),
            Mistake(
                "always the network",
                compares_rates,
                "The network is the slowest of the three rates, but it also carries the least. Compare seconds.",
            ),
            Mistake(
                "leaves the network out",
                leaves_the_network_out,
                "You leave the network out, and here it is the slowest.",
            ),
            Mistake(
                "leaves the memory out",
                leaves_the_memory_out,
                "You leave the memory out, and here it is the slowest.",
            ),
            Mistake(
                "takes the network's rate for bits per second",
                network_in_bits,
                "Your network takes eight times as long: its rate is in bytes per second here, not in bits.",
            ),
            Mistake(
                "multiplies by the rate",
                multiplies,
                "A faster device makes your step slower. An amount is divided by its rate.",
            ),
            Mistake(
                "returns steps per second",
                turns_the_seconds_over,
                "That is how many steps fit into a second. The seconds of one step are asked for.",
            ),
            Mistake(
                "returns the name only",
                name_only,
                "You return the name alone. Two values are asked for: the name, then the seconds.",
            ),
        )
    ),
)
