"""legroom makes reinforcement-learning training fit the machine you have.

    legroom.predict(PPO, "CnnPolicy", env, n_steps=2048)    what that constructor call would need; builds nothing
    legroom.predict(run)                                    the same for a Run
    legroom.predict_model(model)                            the same for a live SB3 model
    legroom.read("mine:full")                               a Run from a file or a name
    legroom.MemoryCallback()                                predicted and measured memory in SB3's logger
    legroom.lean(PPO, "CnnPolicy", env, n_steps=2048)       the algorithm with lossless storage in little memory
    legroom.LeanRolloutBuffer, LeanReplayBuffer, …          the same by SB3's own hooks, rollout_buffer_class=…
    legroom.DoubleDQN("MlpPolicy", env)                     SB3's DQN, double, with priorities and sets of actions
    legroom.LeanVecEnv(env_fns)                             an SB3 VecEnv whose worker processes need no torch
    legroom.share(key, build)                               read-only arrays once for all processes of a run
    legroom.profile(env)                                    whether an environment leaks, and where; what it costs
    with legroom.guard(model): model.learn(...)             an update that runs out of memory is redone in pieces
    @legroom.survive(micro_batch=256)                       the same for the loss of a loop of one's own

Importing legroom imports none of the heavy libraries; the names above are resolved on first use.
"""

from legroom.lazily import lazy_exports

__version__ = "0.1.0"
_STORING = (
    "LeanDictReplayBuffer",
    "LeanDictRolloutBuffer",
    "LeanMaskableDictRolloutBuffer",
    "LeanMaskableRolloutBuffer",
    "LeanReplayBuffer",
    "LeanRolloutBuffer",
    "lean",
)
__all__ = [
    "DoubleDQN", "LeanVecEnv", "MemoryCallback", "guard", "predict", "predict_model", "probe", "profile", "read",
    "share", "survive", *_STORING,
]  # fmt: skip

__getattr__ = lazy_exports(
    __name__,
    {
        "predict": "legroom.api",
        "predict_model": "legroom.api",
        "profile": "legroom.profiling.profile",
        "read": "legroom.reading",
        "probe": "legroom.machine",
        "MemoryCallback": "sb3.MemoryCallback",
        "guard": "sb3.guard",
        "survive": "torch.survive",
        "DoubleDQN": "algorithms.DoubleDQN",
        "LeanVecEnv": "sharing.LeanVecEnv",
        "share": "legroom.sharing.shared",
        **{name: f"storing.{name}" for name in _STORING},
    },
)
