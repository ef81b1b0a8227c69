"""legroom makes reinforcement-learning training fit the machine you have.

    legroom.predict("train.py")                             what a script, a run file or a named run would need
    legroom.predict(PPO, "CnnPolicy", env, n_steps=2048)    what that constructor call would need; builds nothing
    legroom.predict(model), predict(run)                    the same for a live SB3 model, for a Run
    legroom.fits(PPO, "CnnPolicy", env, budget="4GiB")      the same, answered in milliseconds, for tuners
    legroom.read("mine:full")                               a Run from a file or a name
    legroom.MemoryCallback()                                predicted and measured memory in SB3's logger
    legroom.lean(PPO, "CnnPolicy", env, n_steps=2048)       the algorithm with lossless storage in little memory
    legroom.LeanArray((84, 84), "uint8")                    a list of frames in little memory, for a loop of one's own
    legroom.LeanRolloutBuffer, LeanReplayBuffer, …          the same by SB3's own hooks, rollout_buffer_class=…
    legroom.DoubleDQN("MlpPolicy", env)                     SB3's DQN, double, with priorities and sets of actions
    legroom.LeanVecEnv(env_fns)                             an SB3 VecEnv whose worker processes need no torch
    legroom.share(key, build)                               read-only arrays once for all processes of a run
    legroom.profile(env)                                    whether an environment leaks, and where; what it costs
    legroom.attach("lean")                                  the savings of `legroom train --with`, from a line of yours
    with legroom.guard(model): model.learn(...)             an update that runs out of memory is redone in pieces
    with legroom.rehearse(gpu="RTX 4070") as rehearsal:     torch code on a simulated GPU
    @legroom.survive(micro_batch=256)                       the same for the loss of a loop of one's own

Importing legroom imports none of the heavy libraries; the names above are resolved on first use.
"""

from typing import TYPE_CHECKING

from legroom.backends.exports import EXPORTS as BACKENDS_EXPORTS
from legroom.backends.exports import EXTRA
from legroom.extras import lazy_exports

if TYPE_CHECKING:
    from legroom.api import fits as fits
    from legroom.api import predict as predict
    from legroom.api import predict_model as predict_model
    from legroom.api import read as read
    from legroom.backends.exports import DoubleDQN as DoubleDQN
    from legroom.backends.exports import LeanDictReplayBuffer as LeanDictReplayBuffer
    from legroom.backends.exports import LeanDictRolloutBuffer as LeanDictRolloutBuffer
    from legroom.backends.exports import LeanHerReplayBuffer as LeanHerReplayBuffer
    from legroom.backends.exports import LeanMaskableDictRolloutBuffer as LeanMaskableDictRolloutBuffer
    from legroom.backends.exports import LeanMaskableRolloutBuffer as LeanMaskableRolloutBuffer
    from legroom.backends.exports import LeanReplayBuffer as LeanReplayBuffer
    from legroom.backends.exports import LeanRolloutBuffer as LeanRolloutBuffer
    from legroom.backends.exports import LeanVecEnv as LeanVecEnv
    from legroom.backends.exports import MemoryCallback as MemoryCallback
    from legroom.backends.exports import attach as attach
    from legroom.backends.exports import guard as guard
    from legroom.backends.exports import lean as lean
    from legroom.backends.exports import rehearse as rehearse
    from legroom.device.survive import survive as survive
    from legroom.machine import probe as probe
    from legroom.sharing.shared import share as share
    from legroom.storing.array import LeanArray as LeanArray
    from legroom.watching.profile import profile as profile

__version__ = "0.2.0"

# The public names and where they are. Type checkers read the imports above; a test compares the two.
EXPORTS = BACKENDS_EXPORTS | {
    "fits": "legroom.api",
    "LeanArray": "legroom.storing.array",
    "predict": "legroom.api",
    "predict_model": "legroom.api",
    "probe": "legroom.machine",
    "profile": "legroom.watching.profile",
    "read": "legroom.api",
    "share": "legroom.sharing.shared",
    "survive": "legroom.device.survive",
}
__all__ = sorted(EXPORTS)
__getattr__ = lazy_exports(__name__, EXPORTS, extra=EXTRA)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
