"""What torch has no public name for: the backward that runs, and its end.

Floor 2, room `parallel`. torch's own FSDP and checkpointing use the same two.
"""

import torch

at_end_of_backward = torch.autograd.Variable._execution_engine.queue_callback
"""Called in a backward with a function, which runs when everything has been computed, before `backward()` returns."""

running_backward = torch._C._current_graph_task_id
"""The number of the backward that runs in this thread; -1 outside."""
