"""The error of a data set that is missing, damaged or not the one it should be. Floor 0, room `data`."""


class DataError(RuntimeError):
    """A data set that cannot be used here; the message says which, why, and what to do."""
