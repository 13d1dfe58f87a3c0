"""The same GPU, written as obviously as possible: one coroutine a thread, one Python number a value.

Slow, and the oracle: tests run every kernel here and on the compiled machine. Read `numbers`, `rewrite`, `memory`,
`block`, then `execute`. What the two share is the kinds of numbers (held to Numba) and the words of the faults.
"""

from lockstep.simt.slow.execute import run_slowly

__all__ = ["run_slowly"]
