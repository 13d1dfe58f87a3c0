"""Kernels that the labs and the benchmarks use, one topic a file, from the naive version to the good one.

Each is written for `cuda`, the simulator's or Numba's, and says its grid and block. They are plain: read them.
"""
