"""What a profile counts, beside what others count and beside what really happens: seconds, and who is right.

Run: python bench/cost.py [table|kept|peak|peers]     (all of them take some minutes; peers: pip install torchinfo fvcore)

table: parameters and multiply-adds of all of torchvision's classification models against the numbers that it publishes.
kept: bytes kept for backward by a real ResNet-50 with 32 images (3 GB of memory) and by ten others at batch 2.
peak: predicted and measured peaks of a second training step, four networks, two batches, four optimizers.
peers: the same networks by torchinfo, fvcore and PyTorch's FlopCounterMode, in turn within one run: seconds, and which
numbers differ from torchvision's. A grouped convolution shows its backward pass as well.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode
from torchvision.models import list_models

from lockstep.cost import measure_saved_bytes, measure_step, profile, replay_step
from lockstep.nn.models import alexnet, lenet, resnet18, vgg11

sys.path.insert(0, str(Path(__file__).parents[1] / "tests/cost"))
from torchvision_models import build, published  # noqa: E402 - the models as the tests build them

SMALL = {
    "lenet": (lenet, (1, 28, 28)),
    "alexnet": (lambda: alexnet(10, 32), (3, 32, 32)),
    "vgg11": (lambda: vgg11(10, 32), (3, 32, 32)),
    "resnet18": (lambda: resnet18(10, 32), (3, 32, 32)),
}
KEPT = ("alexnet", "squeezenet1_1", "resnet18", "mobilenet_v2", "densenet121", "googlenet", "efficientnet_b0",
        "shufflenet_v2_x1_0", "swin_t", "vit_b_32")  # fmt: skip


def table() -> None:
    worst, wrong, rows, begun = 0.0, 0, 0, time.perf_counter()
    for name in list_models(sys.modules["torchvision"].models):
        done = {}
        for size, parameters, gigamacs in published(name):
            if size not in done:
                # A vision transformer has a parameter for each part of its image.
                options = {"image_size": size[1]} if name.startswith("vit_") else {}
                done[size] = profile(build(name, **options).eval(), size)
            found, rows = done[size], rows + 1
            worst = max(worst, abs(found.macs / 1e9 - gigamacs))
            if found.parameters != parameters or round(found.macs / 1e9, 3) != gigamacs:
                wrong += 1
                said = f"{found.parameters:,} {found.macs / 1e9:.6f}, published {parameters:,} {gigamacs}"
                print(f"{name} at {size}: {said}", flush=True)
    print(f"{rows} sets of weights in {time.perf_counter() - begun:.0f} s: {wrong} differ from the published table")
    print(f"largest difference {worst:.6f} GMACs (the table has 3 decimals)", flush=True)


def with_numbers(model: nn.Module) -> nn.Module:
    """The same model with memory: all zeros."""
    real = model.to_empty(device="cpu")
    with torch.no_grad():
        for tensor in (*real.parameters(), *real.buffers()):
            tensor.zero_()
    return real


def kept() -> None:
    print(f"{'bytes kept for backward':24}{'batch':>6}{'predicted':>16}{'measured':>16}{'error':>9}")
    for name, batch in (("resnet50", 32), *((name, 2) for name in KEPT)):
        model = build(name)
        found = profile(model, (3, 224, 224), batch)
        truth = measure_saved_bytes(with_numbers(model), torch.zeros(batch, 3, 224, 224))
        print(f"{name:24}{batch:6}{found.saved_bytes:16,}{truth:16,}{found.saved_bytes / truth - 1:9.3%}", flush=True)


def peak() -> None:
    print(f"{'peak of a step, MB':18}{'batch':>6}{'optimizer':>11}{'predicted':>12}{'measured':>12}{'error':>9}")
    for name, (make, size) in SMALL.items():
        model = make()
        for batch in (4, 32):
            images, labels = torch.rand(batch, *size), torch.arange(batch) % 10
            for optimizer in ("sgd", "momentum", "adam", "adamw"):
                guess = replay_step(model, size, batch, optimizer).peak
                truth = measure_step(model, images, labels, optimizer).peak
                row = f"{name:18}{batch:6}{optimizer:>11}{guess / 1e6:12.3f}{truth / 1e6:12.3f}"
                print(row + f"{guess / truth - 1:9.3%}", flush=True)


def by_flop_counter(model: nn.Module, size: tuple[int, ...]) -> int:
    with FlopCounterMode(display=False) as counter, torch.device("meta"):
        model(torch.empty(1, *size))
    return counter.get_total_flops() // 2


def by_torchinfo(model: nn.Module, size: tuple[int, ...]) -> int:
    from torchinfo import summary

    return summary(model, input_data=torch.empty(1, *size, device="meta"), device="meta", verbose=0).total_mult_adds


def by_fvcore(model: nn.Module, size: tuple[int, ...]) -> int:
    from fvcore.nn import FlopCountAnalysis

    analysis = FlopCountAnalysis(with_numbers(model), torch.zeros(1, *size))  # it traces a real run
    return int(analysis.unsupported_ops_warnings(False).uncalled_modules_warnings(False).total())


def peers() -> None:
    ways: dict[str, Callable[[nn.Module, tuple[int, ...]], int]] = {
        "cost.profile": lambda model, size: profile(model, size).macs,
        "FlopCounterMode": by_flop_counter,
        "torchinfo": by_torchinfo,
        "fvcore": by_fvcore,
    }
    print(f"{'multiply-adds, seconds':22}" + "".join(f"{way:>28}" for way in ways))
    for name in ("alexnet", "vgg16", "resnet50", "mobilenet_v2", "googlenet", "swin_t", "vit_b_32"):
        size, _, gigamacs = next(published(name))
        row = f"{name:14}{gigamacs:8.3f}"
        for call in ways.values():
            model, begun = build(name).eval(), time.perf_counter()
            try:
                macs = call(model, size) / 1e9
            except ImportError:
                row += f"{'not installed':>28}"
                continue
            except Exception as error:
                row += f"{type(error).__name__:>28}"
                continue
            mark = "" if round(macs, 3) == gigamacs else f" ({macs / gigamacs - 1:+.1%})"
            row += f"{f'{macs:.3f}{mark}, {time.perf_counter() - begun:.2f} s':>28}"
        print(row, flush=True)
    begun = time.perf_counter()
    big = profile(build("vgg16"), (3, 224, 224), 256)
    print(f"VGG-16 with 256 images, {big.saved_bytes / 2**30:.1f} GiB kept: {time.perf_counter() - begun:.2f} s")
    body = nn.Sequential(nn.Conv2d(8, 8, 1), nn.Conv2d(8, 8, 3, groups=4))
    with FlopCounterMode(display=False) as counter:
        body(torch.zeros(2, 8, 6, 6)).sum().backward()
    ours = profile(body, (8, 6, 6), 2)
    print(f"4 groups, both passes: cost.profile {ours.flops:,} FLOPs, FlopCounterMode {counter.get_total_flops():,}")


def main() -> None:
    parts = {"table": table, "kept": kept, "peak": peak, "peers": peers}
    torch.set_num_threads(1)
    for name in sys.argv[1:] or parts:
        if name not in parts:
            sys.exit(f"there is no part {name!r}; there are {', '.join(parts)}")
        parts[name]()


if __name__ == "__main__":
    main()
