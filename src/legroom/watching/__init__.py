"""Memory of any command over time: `watch(command) -> Watched`, `attach(pid) -> Watched`.

watch(["python", "train.py"])        starts it, passes signals and output through, tells what its tree of processes took
attach(1234)                         the same for a tree that runs already
"""

from legroom.model.trace import Watched
from legroom.watching.signal_queue import Signals
from legroom.watching.watch import attach, watch

__all__ = ["Signals", "Watched", "attach", "watch"]
