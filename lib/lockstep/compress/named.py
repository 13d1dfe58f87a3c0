"""Compressors by a text, such as "topk:0.01", for a command line or a menu.

Floor 2, room `compress`.
"""

from __future__ import annotations

from collections.abc import Callable

from lockstep.compress.compressor import Compressor
from lockstep.compress.feedback import ErrorFeedback
from lockstep.compress.int8 import Int8
from lockstep.compress.one_bit import OneBit
from lockstep.compress.power_sgd import PowerSGD
from lockstep.compress.qsgd import QSGD
from lockstep.compress.random_k import RandomK
from lockstep.compress.sensing import CompressedSensing
from lockstep.compress.sign_vote import SignVote
from lockstep.compress.tern_grad import TernGrad
from lockstep.compress.threshold import Threshold
from lockstep.compress.top_k import TopK

COMPRESSORS: dict[str, tuple[type[Compressor], Callable[[str], float] | None, str]] = {
    "int8": (Int8, int, "block"),
    "qsgd": (QSGD, int, "levels"),
    "terngrad": (TernGrad, None, ""),
    "onebit": (OneBit, None, ""),
    "sign": (SignVote, None, ""),
    "topk": (TopK, float, "fraction"),
    "randomk": (RandomK, float, "fraction"),
    "threshold": (Threshold, float, "least"),
    "powersgd": (PowerSGD, int, "rank"),
    "sensing": (CompressedSensing, float, "fraction"),
}
"""Each with the type and the name of the number that may follow its name."""


def named(text: str, feedback: bool = False) -> Compressor:
    """The compressor of that text, with error feedback if wanted. ValueError, with what there is, for another text."""
    name, colon, number = (piece.strip() for piece in text.partition(":"))
    if name not in COMPRESSORS:
        raise ValueError(f"there is no compressor {name!r}; there are {', '.join(COMPRESSORS)}")
    make, kind, what = COMPRESSORS[name]
    if not colon:
        if name == "threshold":
            raise ValueError("threshold needs the least magnitude that is sent, such as threshold:0.001")
        compressor = make()
    elif kind is None:
        raise ValueError(f"compressor {name!r} takes no number, and is followed by {number!r}")
    else:
        try:
            value = kind(number)
        except ValueError:
            example = {"block": 1024, "levels": 7, "least": 0.001, "rank": 2}.get(what, 0.01)
            raise ValueError(f"{text!r}: {what} is a number, such as {name}:{example}") from None
        compressor = make(value)
    return ErrorFeedback(compressor) if feedback else compressor
