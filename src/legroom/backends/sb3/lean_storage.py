"""`legroom.lean(PPO, "CnnPolicy", env, …)`: an SB3 algorithm with the lean buffers that fit it."""

import difflib
import inspect
from importlib import import_module
from typing import Any

from stable_baselines3 import HerReplayBuffer
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm

from legroom.backends.sb3.lean_her import LeanHerReplayBuffer
from legroom.backends.sb3.lean_replay import LeanReplayBuffer
from legroom.backends.sb3.lean_rollout import LeanRolloutBuffer
from legroom.backends.sb3.signatures import SB3_ALGORITHMS
from legroom.errors import BadInput


def lean(algorithm: type[BaseAlgorithm] | str, *args: Any, **kwargs: Any) -> BaseAlgorithm:
    """Return `algorithm(*args, **kwargs)` with lean storage.

    Args:
        algorithm: PPO, A2C, MaskablePPO, DQN, SAC, TD3 …, a class or its name.
        kwargs: its arguments; `max_bytes`, `spill_dir` and `codec` go to the buffer.

    Raises:
        BadInput: there is no such algorithm, or it keeps something that lean storage does not hold.

    Example:
        >>> import legroom
        >>> from stable_baselines3 import PPO
        >>> model = legroom.lean(PPO, "MlpPolicy", "CartPole-v1", n_steps=64)
        >>> type(model.rollout_buffer).__name__
        'LeanRolloutBuffer'
    """
    algorithm = _class_named(algorithm) if isinstance(algorithm, str) else algorithm
    if not isinstance(algorithm, type):
        raise BadInput(f"lean makes a model, and was given {type(algorithm).__name__}",
                       hint='legroom.lean(PPO, "CnnPolicy", env)')  # fmt: skip
    for_buffer: dict[str, Any] = {
        name: kwargs.pop(name) for name in ("max_bytes", "spill_dir", "codec") if name in kwargs
    }
    if issubclass(algorithm, OffPolicyAlgorithm):
        return algorithm(*args, **_with_replay(algorithm, kwargs, for_buffer))
    if not issubclass(algorithm, OnPolicyAlgorithm) or "Recurrent" in algorithm.__name__:
        raise BadInput(f"{algorithm.__name__} has no buffer that lean storage replaces", hint="call it directly")
    given = kwargs.get("rollout_buffer_class")
    if given is not None and not issubclass(given, LeanRolloutBuffer):
        raise BadInput(f"rollout_buffer_class={given.__name__} is already given", hint="remove it")
    kwargs["rollout_buffer_class"] = given or lean_rollout_class(algorithm)
    kwargs["rollout_buffer_kwargs"] = {**(kwargs.get("rollout_buffer_kwargs") or {}), **for_buffer}
    return algorithm(*args, **kwargs)


def _class_named(name: str) -> type[BaseAlgorithm]:
    packages = {one.name: one.package for one in SB3_ALGORITHMS}
    if name not in packages:
        close = difflib.get_close_matches(name, packages, n=1, cutoff=0.4)
        hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(packages)}"
        raise BadInput(f"no algorithm of Stable-Baselines3 is called {name!r}", hint=hint)
    found: type[BaseAlgorithm] = getattr(import_module(packages[name]), name)
    return found


def _with_replay(algorithm: type, kwargs: dict[str, Any], for_buffer: dict[str, Any]) -> dict[str, Any]:
    given = kwargs.get("replay_buffer_class")
    if given is HerReplayBuffer:
        given = LeanHerReplayBuffer
    if given is not None and not issubclass(given, LeanReplayBuffer):
        raise BadInput(f"replay_buffer_class={given.__name__} is already given", hint="remove it")
    parameters = inspect.signature(algorithm).parameters
    buffer_kwargs = {**(kwargs.get("replay_buffer_kwargs") or {}), **for_buffer}
    if (
        kwargs.get("n_steps", 1) > 1
    ):  # SB3 only hands it to its own buffer; the critic's discounts come from the samples
        gamma = kwargs.get("gamma", parameters["gamma"].default)
        buffer_kwargs |= {"n_steps": kwargs.pop("n_steps"), "gamma": gamma}
    return {**kwargs, "replay_buffer_class": given or LeanReplayBuffer, "replay_buffer_kwargs": buffer_kwargs}


def lean_rollout_class(algorithm: type) -> type[LeanRolloutBuffer]:
    """Return the lean rollout buffer that fits an algorithm."""
    if "Maskable" not in algorithm.__name__ and not any("Maskable" in base.__name__ for base in algorithm.__mro__):
        return LeanRolloutBuffer
    from legroom.backends.sb3.lean_maskable import LeanMaskableRolloutBuffer  # needs sb3-contrib, the others do not

    return LeanMaskableRolloutBuffer
