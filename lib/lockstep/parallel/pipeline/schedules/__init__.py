"""The schedules that people know, each a function that gives a `Schedule`.

| schedule      | what it is                                             | chunks a rank | source                            |
|---------------|--------------------------------------------------------|---------------|-----------------------------------|
| `naive`       | one micro-batch at a time: the staircase               | 1             |                                   |
| `gpipe`       | all forward, then all backward                         | 1             | Huang et al. 2019                 |
| `one_f_one_b` | backward as early as it can be                         | 1             | Fan et al. 2021 (DAPPLE)          |
| `interleaved` | 1F1B with several chunks a rank                        | any           | Narayanan et al. 2021             |
| `looped_bfs`  | GPipe with several chunks a rank                       | any           | Lamy-Poirier 2023                 |
| `zero_bubble` | weight gradients fill the gaps                         | 1             | Qi et al. 2023                    |
| `zbv`         | the same with two chunks, placed there and back        | 2             | Qi et al. 2023, section 6         |
| `dualpipev`   | forward of one chunk beside backward of the other      | 2             | DeepSeek-AI 2025                  |
| `pipedream`   | 1F1B without a flush: updates between micro-batches    | 1             | Narayanan et al. 2019             |

In all of them `stages` is the number of ranks. `fuse_backward` makes one with split backwards shorter, for given costs.
"""

from lockstep.parallel.pipeline.schedules.dual import dualpipev
from lockstep.parallel.pipeline.schedules.fuse import fuse_backward
from lockstep.parallel.pipeline.schedules.looped import interleaved, looped_bfs
from lockstep.parallel.pipeline.schedules.single import gpipe, naive, one_f_one_b, pipedream
from lockstep.parallel.pipeline.schedules.split import zbv, zero_bubble

SCHEDULES = {
    "naive": naive,
    "gpipe": gpipe,
    "1f1b": one_f_one_b,
    "interleaved": interleaved,
    "looped_bfs": looped_bfs,
    "zero_bubble": zero_bubble,
    "zbv": zbv,
    "dualpipev": dualpipev,
    "pipedream": pipedream,
}
"""By name, for a command line."""

__all__ = [
    "SCHEDULES",
    "dualpipev",
    "fuse_backward",
    "gpipe",
    "interleaved",
    "looped_bfs",
    "naive",
    "one_f_one_b",
    "pipedream",
    "zbv",
    "zero_bubble",
]
