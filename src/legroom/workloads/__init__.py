"""The import path of the reference workloads in 0.1, which run files and checkpoints hold (`legroom.workloads.…`).

The package is `legroom_workloads`. Its modules import each other by that name, so classes are the same under both.
"""

import legroom_workloads

__path__ = legroom_workloads.__path__
