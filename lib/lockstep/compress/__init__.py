"""Room `compress`: gradient exchanges that send less.

Read `compressor` first. Each compressor has `compress(tensor)`, `decompress(payload)` and `wire_bytes(shape, ranks)`,
is an exchange of `lockstep.parallel.DistributedDataParallel`, and, through `as_torch_hook`, of torch's.

| compressor          | a value takes, float32      | payloads meet by              | unbiased | needs feedback |
|---------------------|-----------------------------|-------------------------------|----------|----------------|
| `Int8`              | 8 bits, a scale a block     | all-to-all, sum, all-gather   | yes      | no             |
| `QSGD(levels)`      | a digit of base 2s+1        | all-gather                    | yes      | no             |
| `TernGrad`          | 1.6 bits                    | all-gather                    | yes      | no             |
| `OneBit`            | 1 bit, two means a column   | all-gather                    | no       | yes            |
| `SignVote`          | 1 bit                       | all-gather and vote           | no       | no             |
| `TopK(fraction)`    | fraction of 64 bits         | all-gather                    | no       | yes            |
| `DGC(fraction)`     | fraction of 64 bits         | all-gather                    | no       | has its own    |
| `Threshold(least)`  | 64 bits where large enough  | all-gather of told sizes      | no       | yes            |
| `RandomK(fraction)` | fraction of 32 bits         | ring all-reduce               | if asked | yes            |
| `PowerSGD(rank)`    | (n+m)r/(nm) of 32 bits      | two ring all-reduces          | no       | yes            |
| `CompressedSensing` | fraction of 32 bits         | ring all-reduce               | no       | yes            |

What work costs a device is in `work`. In `bench/compress_accuracy.py` `OneBit` with feedback sends 96.4 % fewer bytes
than none on two ranks, 8,120 a step for 228,312 by the traffic counters, and ends 1.2 points lower at equal steps (means
of three starts, which differ by 4 to 9 points among themselves). `TopK(0.01)` with feedback lags further behind: by 1.2
to 10.7 points in three starts.

`named("topk:0.01")` makes one from a text. `LocalSGD` sends no gradients at all, and averages weights every few steps.
"""

from lockstep.compress.compressor import Compressor, Round
from lockstep.compress.dgc import DGC
from lockstep.compress.feedback import ErrorFeedback
from lockstep.compress.finite import NotFinite
from lockstep.compress.int8 import Int8
from lockstep.compress.local_sgd import LocalSGD
from lockstep.compress.named import COMPRESSORS, named
from lockstep.compress.one_bit import OneBit
from lockstep.compress.payload import Payload
from lockstep.compress.power_sgd import PowerSGD
from lockstep.compress.qsgd import QSGD
from lockstep.compress.random_k import RandomK
from lockstep.compress.sensing import CompressedSensing
from lockstep.compress.sign_vote import SignVote
from lockstep.compress.tern_grad import TernGrad
from lockstep.compress.threshold import Threshold
from lockstep.compress.top_k import TopK
from lockstep.compress.torch_hook import as_torch_hook

__all__ = [
    "COMPRESSORS",
    "DGC",
    "QSGD",
    "CompressedSensing",
    "Compressor",
    "ErrorFeedback",
    "Int8",
    "LocalSGD",
    "NotFinite",
    "OneBit",
    "Payload",
    "PowerSGD",
    "RandomK",
    "Round",
    "SignVote",
    "TernGrad",
    "Threshold",
    "TopK",
    "as_torch_hook",
    "named",
]
