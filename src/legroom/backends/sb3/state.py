"""An SB3 model with its environments as arrays and JSON, and back: what makes a resumed run end with the same bits.

The moment matters. State is captured *between iterations*: after an update, before `collect_rollouts` is called, when
no rollout is half full; and, where `rollout_state` knows how, before a step or a minibatch within one. Everything that
a later iteration reads before it writes is captured: networks and optimizers, counters that schedules and target
updates go by, every random generator, the environments with their wrappers, the observation acted on next, action
noise, and replay. Schedules are functions of the progress and keep nothing.

Mirrors stable-baselines3 2.9 and sb3-contrib 2.9: `_setup_learn` and `learn` of both algorithm families.

Random numbers come from torch on the host and on every GPU, NumPy's global generator (SB3's buffers draw from it),
Python's own, and the generator of the action space (the random actions before learning starts). An environment's own is
in its state.
"""

import random
import time
from collections import deque
from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.noise import (
    ActionNoise,
    NormalActionNoise,
    OrnsteinUhlenbeckActionNoise,
    VectorizedActionNoise,
)

from legroom.backends.sb3.replay_state import capture_replay, prepare_replay
from legroom.backends.sb3.rollout_state import capture_rollout, prepare_rollout
from legroom.backends.sb3.state_envs import capture_envs, describe_space, make_space, prepare_envs
from legroom.backends.sb3.state_torch import (
    capture_learned,
    misfit,
    policy_arrays,
    prepare_learned,
    to_array,
    to_tensor,
)
from legroom.backends.sb3.updates import update_of
from legroom.device.redoing import has_cuda_context
from legroom.errors import BadInput
from legroom.model.learner import SavedState, State
from legroom.training.arrays import NotPlain, put_together, take_apart

__all__ = [
    "State", "capture", "continue_learning", "policy_arrays", "restore", "restore_learned", "restore_log",
    "saved_spaces",
]  # fmt: skip

# Algorithms whose whole state is known. Others are saved as far as SB3 says what their state is.
EXACT = frozenset(
    {"PPO", "MaskablePPO", "A2C", "DQN", "DoubleDQN", "SAC", "TD3", "DDPG", "QRDQN", "TQC", "TRPO", "CrossQ"}
)
_LIBRARIES = ("stable_baselines3.", "sb3_contrib.", "legroom_workloads.")
VERSIONS = {name: version(name) for name in ("stable-baselines3", "torch", "numpy", "gymnasium")}
COUNTERS = (
    "num_timesteps", "_total_timesteps", "_num_timesteps_at_start", "_episode_num", "_n_updates", "_n_calls",
    "exploration_rate", "_current_progress_remaining",
)  # fmt: skip
MINIBATCHES = "_minibatches_done"  # among the counters; of the model's `Update`


def capture(
    model: BaseAlgorithm,
    callbacks_state: Mapping[str, Any] | None = None,
    *,
    previous: SavedState | None = None,
    within: bool = False,
) -> State:
    """Return the state of a model between two iterations; arrays share its memory, so write them before it goes on.

    Args:
        callbacks_state: plain data that is handed back as `checkpoint.data["callbacks"]`.
        previous: the run's last checkpoint; its replay segments are linked instead of written again.
        within: it is in an iteration: the rollout is part of the state (`rollout_state`).
    """
    arrays: dict[str, np.ndarray] = {}
    envs, why = capture_envs(model)
    noise, unknown = _noise_state(model.action_noise)
    why = why or unknown
    algorithm = algorithm_name(model)
    if algorithm not in EXACT:
        why = why or f"{algorithm}'s state is not known to legroom"
    replay = capture_replay(model, previous, arrays)
    rollout = capture_rollout(model, previous, arrays) if within else None
    update = update_of(model)
    why = why or replay.why_not_exact
    data: dict[str, Any] = {
        "algorithm": algorithm,
        "versions": VERSIONS,
        "n_envs": model.n_envs,
        "counters": {name: getattr(model, name) for name in COUNTERS if hasattr(model, name)}
        | ({} if update is None else {MINIBATCHES: update.done}),
        "elapsed_s": (time.time_ns() - model.start_time) / 1e9 if model.start_time else 0.0,
        "replay": replay.data,
        **({} if rollout is None else {"rollout": rollout.data}),
        **capture_learned(model, arrays),
    }
    trees = {
        "spaces": {
            "observation": describe_space(model.observation_space),
            "action": describe_space(model.action_space),
        },
        "envs": envs,
        "random": capture_random(model.action_space),
        "noise": noise,
        "episodes": {
            "infos": _only_plain(model.ep_info_buffer),
            "successes": _only_plain(model.ep_success_buffer),
        },
        "log": _pending_log(model),
        "callbacks": dict(callbacks_state or {}),
    }
    for name, tree in trees.items():
        data[name] = take_apart(tree, name, arrays)
    kept = replay if rollout is None else rollout  # no algorithm has both
    return State(arrays, data, why, kept.link, kept.files)


def restore(model: BaseAlgorithm, checkpoint: SavedState) -> str:
    """Bring a freshly made model, with its environments, to where the checkpoint was taken.

    Returns why going on is not exact, "" where it is; then `continue_learning` ends with the bits of a run that was
    never interrupted.

    Raises:
        BadInput: the checkpoint is of something else; names the first difference, and nothing has changed.
    """
    set_learned = _prepare(model, checkpoint)
    set_envs, why = prepare_envs(model, _section(checkpoint, "envs"), checkpoint)
    set_replay, lost = prepare_replay(model, checkpoint)
    set_rollout, unused = prepare_rollout(model, checkpoint)
    set_learned()
    set_replay()
    set_rollout()
    set_envs()
    episodes = _section(checkpoint, "episodes")
    for name, key in (("ep_info_buffer", "infos"), ("ep_success_buffer", "successes")):
        if episodes[key] is not None:
            setattr(model, name, deque(episodes[key], maxlen=model._stats_window_size))
    unlike = _restore_noise(model, _section(checkpoint, "noise"))
    restore_random(_section(checkpoint, "random"), model.action_space)  # last: whatever came before may have drawn
    return why or lost or unused or unlike


def restore_learned(model: BaseAlgorithm, checkpoint: SavedState) -> None:
    """Give a model what was learned and how far it was: networks, optimizers and counters, and nothing else.

    Raises:
        BadInput: as `restore`.
    """
    _prepare(model, checkpoint)()


def saved_spaces(checkpoint: SavedState) -> dict[str, spaces.Space[Any]]:
    """Return the observation space and the action space that the policy was made for."""
    return {kind: make_space(tree) for kind, tree in _section(checkpoint, "spaces").items()}


def continue_learning(model: BaseAlgorithm, total_timesteps: int, callback: Any = None, **arguments: Any) -> None:
    """Learn until `total_timesteps` are reached, what has been done before included; nothing where they are.

    SB3 adds the steps made so far to what `learn` is given, unless they are reset; so the rest is given, and schedules
    see the same total as in a run that was not interrupted. `_num_timesteps_at_start` is for the steps per second only.
    """
    rest, began = total_timesteps - model.num_timesteps, model._last_obs is not None
    if rest > 0:
        model.learn(rest, callback=callback, reset_num_timesteps=not (began or model.num_timesteps), **arguments)


def restore_log(model: BaseAlgorithm, checkpoint: SavedState) -> None:
    """Give the logger what an update had recorded and the next iteration will write; call it once there is a logger."""
    for name, (value, excluded) in _section(checkpoint, "log").items():
        model.logger.record(name, value, exclude=excluded)


def algorithm_name(model: BaseAlgorithm) -> str:
    """Return the library's name of the algorithm, also of a subclass of ours or the user's."""
    for kind in type(model).__mro__:
        if kind.__module__.startswith(_LIBRARIES):
            return kind.__name__
    return type(model).__name__


def _prepare(model: BaseAlgorithm, checkpoint: SavedState) -> Callable[[], None]:
    data = checkpoint.data
    if data["algorithm"] != algorithm_name(model):
        raise misfit(checkpoint, f"it is of {data['algorithm']}, and this is {algorithm_name(model)}")
    theirs = saved_spaces(checkpoint)
    for kind, own in (("observation", model.observation_space), ("action", model.action_space)):
        if theirs[kind] != own:
            raise misfit(checkpoint, f"its {kind} space is {theirs[kind]}, and here it is {own}")
    set_learned = prepare_learned(model, checkpoint)

    def take_over() -> None:
        set_learned()
        for name, value in data["counters"].items():
            if name != MINIBATCHES:
                setattr(model, name, value)
            elif (update := update_of(model)) is not None:
                update.done = value

    return take_over


def _section(checkpoint: SavedState, name: str) -> Any:
    return put_together(
        checkpoint.data[name], {f"{name}/{key}": array for key, array in checkpoint.tensors(name).items()}
    )


def _only_plain(entries: Any) -> list[Any] | None:
    """Return the entries without what is not plain data: they go to the logs only."""
    if entries is None:
        return None
    kept = []
    for entry in entries:
        pairs = entry.items() if isinstance(entry, Mapping) else [("", entry)]
        plain = {}
        for key, value in pairs:
            try:
                take_apart(value, "", {})
            except NotPlain:
                continue
            plain[key] = value
        kept.append(plain if isinstance(entry, Mapping) else plain.get(""))
    return kept


def _pending_log(model: BaseAlgorithm) -> dict[str, Any]:
    logger = getattr(model, "_logger", None)
    if logger is None:
        return {}
    excluded = logger.name_to_excluded
    return {
        name: [value, excluded.get(name)]
        for name, value in logger.name_to_value.items()
        if isinstance(value, int | float | str | np.number)
    }


def _noise_state(noise: ActionNoise | None) -> tuple[Any, str]:
    """Return what an action noise remembers, and what is not known about it."""
    if noise is None:
        return None, ""
    kind, why = type(noise).__name__, ""
    state: Any = None
    if isinstance(noise, VectorizedActionNoise):
        parts = [_noise_state(part) for part in noise.noises]
        state, why = [part for part, _ in parts], next((unknown for _, unknown in parts if unknown), "")
    elif isinstance(noise, OrnsteinUhlenbeckActionNoise):
        state = np.asarray(noise.noise_prev)
    elif not isinstance(noise, NormalActionNoise):
        why = f"the state of {kind} is not known to legroom"
    return {"class": kind, "state": state}, why


def _restore_noise(model: BaseAlgorithm, saved: Any) -> str:
    """Set the action noise, and keep `_setup_learn` from resetting it; return why it could not be set."""
    noise, n_envs = model.action_noise, model.n_envs
    if noise is None or saved is None:
        return "" if noise is None and saved is None else "the action noise differs"
    if saved["class"] == VectorizedActionNoise.__name__ and not isinstance(noise, VectorizedActionNoise):
        noise = model.action_noise = VectorizedActionNoise(noise, n_envs)  # as _setup_learn would
    parts = noise.noises if isinstance(noise, VectorizedActionNoise) else [noise]
    states = saved["state"] if isinstance(noise, VectorizedActionNoise) else [saved]
    if len(states) != len(parts) or any(type(p).__name__ != s["class"] for p, s in zip(parts, states, strict=True)):
        return "the action noise differs"
    for part, state in zip(parts, states, strict=True):
        if isinstance(part, OrnsteinUhlenbeckActionNoise):
            part.noise_prev = state["state"]

    def go_on(*arguments: Any, **more: Any) -> None:
        del noise.reset  # only the reset at the beginning of learn() is left out

    noise.reset = go_on  # type: ignore[method-assign]
    return ""


def capture_random(action_space: spaces.Space[Any]) -> dict[str, Any]:
    """Return the states of all generators."""
    version, numbers, gauss = random.getstate()
    uses_gpu = has_cuda_context()
    return {
        "torch": to_array(torch.get_rng_state()),
        "cuda": [to_array(state) for state in torch.cuda.get_rng_state_all()] if uses_gpu else [],
        "numpy": np.random.get_state(legacy=False),
        "python": {"version": version, "numbers": np.array(numbers, np.uint32), "gauss": gauss},
        "action_space": _generator_state(action_space),
    }


def restore_random(state: Mapping[str, Any], action_space: spaces.Space[Any]) -> None:
    """Continue all generators from where they were.

    Raises:
        BadInput: the states are of other generators.
    """
    try:
        torch.set_rng_state(to_tensor(state["torch"]))
        if torch.cuda.is_available():
            for device, numbers in enumerate(state["cuda"][: torch.cuda.device_count()]):
                torch.cuda.set_rng_state(to_tensor(numbers), device)
        np.random.set_state(state["numpy"])
        python = state["python"]
        random.setstate((python["version"], tuple(python["numbers"].tolist()), python["gauss"]))
        if state["action_space"] is not None:
            action_space.np_random.bit_generator.state = state["action_space"]
    except (ValueError, TypeError, KeyError, RuntimeError) as error:
        raise BadInput(f"the checkpoint's random generators do not match: {error}") from error


def _generator_state(space: spaces.Space[Any]) -> Any:
    generator = space._np_random  # asking for `np_random` would make one
    return None if generator is None else generator.bit_generator.state
