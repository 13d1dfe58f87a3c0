"""Devices, links and clusters, with published figures and where each was published.

Floor 0, imports nothing of ours. Units: FLOP/s, bytes/s, bytes, seconds. Every FLOP rate is the
peak for dense operands (no sparsity), every bandwidth counts one direction. Peaks are upper bounds:
for a machine at hand, `lockstep.world.calibrate()` measures instead.

| key         | device                  | float32 TFLOP/s | bfloat16/float16 | memory        | GPU to GPU | node to node |
|-------------|-------------------------|-----------------|------------------|---------------|------------|--------------|
| `A100`      | A100 SXM 80 GB          | 19.5            | 312              | 2,039 GB/s    | NVLink 3   | HDR          |
| `A100-40GB` | A100 SXM 40 GB          | 19.5            | 312              | 1,555 GB/s    | NVLink 3   | HDR          |
| `H100`      | H100 SXM 80 GB          | 67              | 989              | 3,350 GB/s    | NVLink 4   | NDR          |
| `V100`      | V100 SXM2 32 GB         | 15.7            | 125              | 900 GB/s      | NVLink 2   | EDR          |
| `T4`        | T4 16 GB                | 8.1             | 65               | 320 GB/s      | PCIe 3     | 10GbE        |
| `RTX3090`   | GeForce RTX 3090 24 GB  | 35.6            | 71               | 936 GB/s      | PCIe 4     | 10GbE        |
| `RTX4090`   | GeForce RTX 4090 24 GB  | 82.6            | 165.2            | 1,008 GB/s    | PCIe 4     | 10GbE        |
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

GIB = 2**30


def _positive(what: str, value: float, zero_allowed: bool = False) -> None:
    number = isinstance(value, (int, float)) and not isinstance(value, bool) and not math.isnan(value)
    if not number or value < 0 or (value == 0 and not zero_allowed):
        raise ValueError(f"{what} must be a number {'of at least' if zero_allowed else 'above'} 0, not {value!r}")


@dataclass(frozen=True, slots=True)
class Device:
    """One processor: `flops` maps a dtype's name to its peak FLOP/s, `memory` is in bytes.

    Raises ValueError when a figure is not above 0.
    """

    name: str
    flops: Mapping[str, float]
    memory_bandwidth: float
    memory: int
    source: str

    def __post_init__(self) -> None:
        for dtype, rate in self.flops.items():
            _positive(f"the {dtype} FLOP rate of {self.name}", rate)
        _positive(f"the memory bandwidth of {self.name}", self.memory_bandwidth)
        _positive(f"the memory of {self.name}", self.memory)

    def rate(self, dtype: str = "float32") -> float:
        """Peak FLOP/s for `dtype` ("float32", "tf32", "bfloat16", ...); ValueError when none is published."""
        if dtype not in self.flops:
            raise ValueError(f"no {dtype!r} FLOP rate is known for {self.name}; known: {', '.join(self.flops)}")
        return self.flops[dtype]


@dataclass(frozen=True, slots=True)
class Link:
    """One direction between two devices: a message of n bytes takes latency + n / bandwidth seconds.

    Raises ValueError when the latency is negative or the bandwidth not above 0 (it may be infinite).
    """

    latency: float
    bandwidth: float
    source: str = "given by the caller"

    def __post_init__(self) -> None:
        _positive("a link's latency", self.latency, zero_allowed=True)
        _positive("a link's bandwidth", self.bandwidth)
        if math.isinf(self.latency):
            raise ValueError("a link's latency must be finite")

    def seconds(self, nbytes: int) -> float:
        """How long a message of `nbytes` occupies the link."""
        return self.latency + nbytes / self.bandwidth


@dataclass(frozen=True, slots=True)
class Cluster:
    """Nodes of `per_node` equal devices: rank r is device r mod per_node of node r div per_node.

    `within` joins devices of one node, `between` those of different nodes; each device has its own
    port onto both. `nodes=None` means as many as the ranks need. Raises ValueError without a device or a node.
    """

    device: Device
    per_node: int
    within: Link
    between: Link
    nodes: int | None = None

    def __post_init__(self) -> None:
        for what, count in (("devices per node", self.per_node), ("nodes", 1 if self.nodes is None else self.nodes)):
            if not isinstance(count, int) or count < 1:
                raise ValueError(f"a cluster's {what} must be a whole number of at least one, not {count!r}")

    @classmethod
    def uniform(cls, link: Link, device: Device | str = "A100") -> Cluster:
        """Every rank on a node of its own, every pair joined by the same `link`."""
        return cls(DEVICES[_known("device", device, DEVICES)] if isinstance(device, str) else device, 1, link, link)

    def node(self, rank: int) -> int:
        """The node that `rank` is on."""
        return rank // self.per_node

    def link(self, src: int, dst: int) -> Link:
        """The link a message from rank `src` to rank `dst` takes."""
        return self.within if self.node(src) == self.node(dst) else self.between

    def check_ranks(self, ranks: int) -> None:
        """Raise ValueError when the cluster has fewer devices than `ranks`."""
        if self.nodes is not None and ranks > self.nodes * self.per_node:
            raise ValueError(
                f"{ranks} ranks need {ranks} devices, and {self.nodes} x {self.per_node} {self.device.name} are "
                f"{self.nodes * self.per_node}; ask for at least {math.ceil(ranks / self.per_node)} nodes"
            )


def _device(name: str, memory_gib: int, gigabytes_per_second: float, source: str, **teraflops: float) -> Device:
    rates = {dtype: tera * 1e12 for dtype, tera in teraflops.items()}
    return Device(name, rates, gigabytes_per_second * 1e9, memory_gib * GIB, source)


_AMPERE = "NVIDIA A100 Tensor Core GPU datasheet, 2021"
_GEFORCE = "tensor-core rates with float32 accumulation"

DEVICES: Mapping[str, Device] = MappingProxyType(
    {
        "A100": _device(
            "A100 SXM 80GB", 80, 2039, _AMPERE, float32=19.5, tf32=156, bfloat16=312, float16=312, float64=9.7
        ),
        "A100-40GB": _device(
            "A100 SXM 40GB",
            40,
            1555,
            "NVIDIA A100 Tensor Core GPU Architecture whitepaper, 2020, table 1",
            float32=19.5,
            tf32=156,
            bfloat16=312,
            float16=312,
            float64=9.7,
        ),
        # The datasheet prints tensor-core rates with sparsity; the dense ones are half.
        "H100": _device(
            "H100 SXM 80GB",
            80,
            3350,
            "NVIDIA H100 Tensor Core GPU datasheet, 2023",
            float32=67,
            tf32=494.5,
            bfloat16=989.5,
            float16=989.5,
            float8=1979,
            float64=34,
        ),
        "V100": _device(
            "V100 SXM2 32GB",
            32,
            900,
            "NVIDIA V100 Tensor Core GPU datasheet, 2020",
            float32=15.7,
            float16=125,
            float64=7.8,
        ),
        "T4": _device("T4 16GB", 16, 320, "NVIDIA T4 Tensor Core GPU datasheet, 2019", float32=8.1, float16=65),
        "RTX3090": _device(
            "GeForce RTX 3090",
            24,
            936,
            f"NVIDIA Ampere GA102 GPU Architecture whitepaper, 2021, appendix A; {_GEFORCE}",
            float32=35.6,
            tf32=35.6,
            bfloat16=71,
            float16=71,
        ),
        "RTX4090": _device(
            "GeForce RTX 4090",
            24,
            1008,
            f"NVIDIA Ada GPU Architecture whitepaper, 2023, appendix A; {_GEFORCE}",
            float32=82.6,
            tf32=82.6,
            bfloat16=165.2,
            float16=165.2,
        ),
    }
)

# Vendors publish bandwidths, hardly ever latencies. Where NCCL is what a program would use, the latency
# is the one NCCL itself plans with for a step of its ring.
_NCCL = "latency: NCCL, src/graph/tuning.cc, hwLat, ring with the simple protocol"
_TCP = "latency: an assumption of this course for TCP within one room; no datasheet states one"

LINKS: Mapping[str, Link] = MappingProxyType(
    {
        "NVLink2": Link(3.4e-6, 150e9, f"NVIDIA V100 datasheet, 2020: 300 GB/s for both directions; {_NCCL}"),
        "NVLink3": Link(3.4e-6, 300e9, f"{_AMPERE}: 600 GB/s for both directions; {_NCCL}"),
        "NVLink4": Link(3.4e-6, 450e9, f"NVIDIA H100 datasheet, 2023: 900 GB/s for both directions; {_NCCL}"),
        "PCIe3": Link(5.7e-6, 8e9 * 16 * 128 / 130 / 8, f"PCI Express 3.0, 2010: 8 GT/s, 16 lanes, 128b/130b; {_NCCL}"),
        "PCIe4": Link(5.7e-6, 16e9 * 16 * 128 / 130 / 8, f"PCI Express 4.0, 2017: 16 GT/s, 16 lanes; {_NCCL}"),
        "PCIe5": Link(5.7e-6, 32e9 * 16 * 128 / 130 / 8, f"PCI Express 5.0, 2019: 32 GT/s, 16 lanes; {_NCCL}"),
        "EDR": Link(14e-6, 12.5e9, f"InfiniBand EDR, 100 Gb/s (InfiniBand Trade Association roadmap); {_NCCL}"),
        "HDR": Link(14e-6, 25e9, f"InfiniBand HDR, 200 Gb/s (InfiniBand Trade Association roadmap); {_NCCL}"),
        "NDR": Link(14e-6, 50e9, f"InfiniBand NDR, 400 Gb/s (InfiniBand Trade Association roadmap); {_NCCL}"),
        "1GbE": Link(50e-6, 0.125e9, f"IEEE 802.3ab, 1999: 1 Gb/s; {_TCP}"),
        "10GbE": Link(30e-6, 1.25e9, f"IEEE 802.3ae, 2002: 10 Gb/s; {_TCP}"),
        "100GbE": Link(20e-6, 12.5e9, f"IEEE 802.3ba, 2010: 100 Gb/s; {_TCP}"),
    }
)

# What the devices are usually sold with: DGX A100 (2020) and DGX H100 (2022) have one HDR or NDR adapter
# per GPU, DGX-1 (2017) has EDR; the others sit in ordinary servers.
_USUAL_LINKS: Mapping[str, tuple[str, str]] = {
    "A100": ("NVLink3", "HDR"),
    "A100-40GB": ("NVLink3", "HDR"),
    "H100": ("NVLink4", "NDR"),
    "V100": ("NVLink2", "EDR"),
    "T4": ("PCIe3", "10GbE"),
    "RTX3090": ("PCIe4", "10GbE"),
    "RTX4090": ("PCIe4", "10GbE"),
}

DEFAULT_CLUSTER = "8xA100"
_FORM = re.compile(r"\s*(\d+)\s*x\s*([A-Za-z][\w-]*?)\s*(?:x\s*(\d+)\s*)?")


def _known(kind: str, name: str, table: Mapping[str, object]) -> str:
    """The key of `table` that equals `name` but for case and spaces; ValueError lists what there is."""
    for key in table:
        if key.lower() == name.replace(" ", "").lower():
            return key
    raise ValueError(f"no {kind} {name!r} is known; known: {', '.join(table)}")


def device(name: str) -> Device:
    """The published figures of a device, by the key in this module's table; ValueError lists the known ones."""
    return DEVICES[_known("device", name, DEVICES)]


def link(name: str) -> Link:
    """The published figures of a link, such as "NVLink3" or "HDR"; ValueError lists the known ones."""
    return LINKS[_known("link", name, LINKS)]


def cluster(spec: str | Cluster | Link) -> Cluster:
    """A cluster from its description: "8xA100 x 4" is four nodes of eight, "8xA100" as many nodes as the ranks need.

    A `Link` alone gives `Cluster.uniform(link)`. Raises ValueError when the text or the device is not known.
    """
    if isinstance(spec, Cluster):
        return spec
    if isinstance(spec, Link):
        return Cluster.uniform(spec)
    form = _FORM.fullmatch(spec) if isinstance(spec, str) else None
    if form is None:
        raise ValueError(f'a cluster reads "8xA100 x 4" (devices per node, device, nodes) or "8xA100", not {spec!r}')
    name, nodes = _known("device", form[2], DEVICES), form[3]
    within, between = (LINKS[key] for key in _USUAL_LINKS[name])
    return Cluster(DEVICES[name], int(form[1]), within, between, None if nodes is None else int(nodes))
