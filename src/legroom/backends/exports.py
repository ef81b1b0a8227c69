"""Public names of the package that live in a backend's room; `legroom/__init__.py` hands them on.

Type checkers read the imports, everything else the table: nothing is imported before it is asked for.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from legroom.backends.program.attach_api import attach as attach
    from legroom.backends.program.in_process import rehearse as rehearse
    from legroom.backends.sb3.guard import guard as guard
    from legroom.backends.sb3.lean_her import LeanHerReplayBuffer as LeanHerReplayBuffer
    from legroom.backends.sb3.lean_maskable import LeanMaskableDictRolloutBuffer as LeanMaskableDictRolloutBuffer
    from legroom.backends.sb3.lean_maskable import LeanMaskableRolloutBuffer as LeanMaskableRolloutBuffer
    from legroom.backends.sb3.lean_replay import LeanDictReplayBuffer as LeanDictReplayBuffer
    from legroom.backends.sb3.lean_replay import LeanReplayBuffer as LeanReplayBuffer
    from legroom.backends.sb3.lean_rollout import LeanDictRolloutBuffer as LeanDictRolloutBuffer
    from legroom.backends.sb3.lean_rollout import LeanRolloutBuffer as LeanRolloutBuffer
    from legroom.backends.sb3.lean_storage import lean as lean
    from legroom.backends.sb3.lean_vec_env import LeanVecEnv as LeanVecEnv
    from legroom.backends.sb3.memory_callback import MemoryCallback as MemoryCallback
    from legroom_workloads.fire.algorithms.double_dqn import DoubleDQN as DoubleDQN

EXTRA = "sb3"  # what they need
EXPORTS = {
    "attach": "legroom.backends.program.attach_api",
    "DoubleDQN": "legroom_workloads.fire.algorithms.double_dqn",
    "guard": "legroom.backends.sb3.guard",
    "LeanHerReplayBuffer": "legroom.backends.sb3.lean_her",
    "LeanMaskableDictRolloutBuffer": "legroom.backends.sb3.lean_maskable",
    "LeanMaskableRolloutBuffer": "legroom.backends.sb3.lean_maskable",
    "LeanDictReplayBuffer": "legroom.backends.sb3.lean_replay",
    "LeanReplayBuffer": "legroom.backends.sb3.lean_replay",
    "LeanDictRolloutBuffer": "legroom.backends.sb3.lean_rollout",
    "LeanRolloutBuffer": "legroom.backends.sb3.lean_rollout",
    "lean": "legroom.backends.sb3.lean_storage",
    "LeanVecEnv": "legroom.backends.sb3.lean_vec_env",
    "rehearse": "legroom.backends.program.in_process",
    "MemoryCallback": "legroom.backends.sb3.memory_callback",
}
