"""Lockstep: a hands-on course on training convolutional networks in parallel."""

from typing import Any

__version__ = "0.1.0"


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext lockstep` registers the cell magic `%%ranks`; `import lockstep.world` in a notebook does the same."""
    from lockstep.world.magic import load_ipython_extension as register  # torch comes with it: only when asked for

    register(shell)
