"""What is wrong with a checkpoint. Floor 2, room `parallel`."""


class CheckpointError(ValueError):
    """A checkpoint cannot be written or loaded; the same sentence on every rank."""
