"""What compiled kernels run on: a batch of blocks whose lanes are the elements of NumPy vectors.

A value is one NumPy scalar (the same for all lanes), or an array of shape (1, lanes) where it depends on the thread
alone, (blocks, 1) where it depends on the block alone, or (blocks, lanes). NumPy's broadcasting does the rest.
Read `masks`, `batch`, `memory`, then `races` and `counting`.
"""
