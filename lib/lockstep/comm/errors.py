"""The errors of the room, apart from everything else so that every file of it can raise them."""


class CommunicationError(RuntimeError):
    """A call that cannot be right: ranks disagree, a shape differs, a rank does not exist."""


class PeerLost(CommunicationError):
    """A call that was right, and broke off because another rank left; that rank's own error is the cause."""


class NeverWaited(CommunicationError):
    """A rank's function returned and left a handle without `wait()`; `site` is the (file, line) of the call that gave it."""

    site: tuple[str, int] = ("", 0)


def never_waited(rank: int, call: str, site: tuple[str, int]) -> NeverWaited:
    """The error about a handle of `call`."""
    error = NeverWaited(
        f"Rank {rank} returned without waiting for {call}: until wait() has returned, nobody knows whether it is done, "
        f"and its tensor must not change. Keep the handle that the call gives, and call wait() on it."
    )
    error.site = site
    return error
