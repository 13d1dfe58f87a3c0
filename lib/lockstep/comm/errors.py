"""The error of a call that cannot be right, apart from everything else so that every file of the room can raise it."""


class CommunicationError(RuntimeError):
    """A call that cannot be right: ranks disagree, a shape differs, a rank does not exist."""
