"""Lockstep: a hands-on course on training convolutional networks in parallel."""

__version__ = "0.1.0"
