"""The errors of the room, apart from everything else so that every file of it can raise them."""


class CommunicationError(RuntimeError):
    """A call that cannot be right: ranks disagree, a shape differs, a rank does not exist."""


class PeerLost(CommunicationError):
    """A call that was right, and broke off because another rank left; that rank's own error is the cause."""
