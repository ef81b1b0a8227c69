"""What values a hyperparameter may have, as far as a wrong one would make a wrong prediction or a crash later on."""

from __future__ import annotations

import math
import re
from typing import Any

from legroom.units import LARGEST

# Whole numbers, at least 1: sizes and counts that arrays and loops are made of.
SIZES = frozenset({
    "n_steps", "batch_size", "n_epochs", "buffer_size", "target_update_interval", "policy_delay", "n_delta", "n_top",
    "n_critic_updates", "cg_max_steps", "line_search_max_iter", "sub_sampling_factor", "n_eval_episodes",
    "stats_window_size",
    "unroll_length", "num_minibatches", "num_updates_per_batch", "episode_length", "action_repeat",
    "max_replay_size", "grad_updates_per_step", "max_devices_per_host",
    "num_envs_per_env_runner", "train_batch_size", "train_batch_size_per_learner", "minibatch_size", "num_epochs",
    "num_sgd_iter", "n_step",
})  # fmt: skip
# Whole numbers from 0, or from -1 where that is the library's word for "as many as there are" or "never".
COUNTS = {
    "learning_starts": 0, "top_quantiles_to_drop_per_net": 0, "min_replay_size": 0, "num_resets_per_eval": 0,
    "num_evals": 0, "verbose": 0, "num_env_runners": 0, "num_learners": 0, "evaluation_num_env_runners": 0,
    "gradient_steps": -1, "sde_sample_freq": -1,
}  # fmt: skip
# Free-form: class names, mappings, objects of the library.
FREE = frozenset({
    "rollout_buffer_class", "rollout_buffer_kwargs", "replay_buffer_class", "replay_buffer_kwargs", "action_noise",
    "tensorboard_log", "rollout_fragment_length", "replay_buffer_config", "batch_mode", "framework", "fcnet_hiddens",
    "epsilon", "_init_setup_model",
})  # fmt: skip
_SCHEDULE = re.compile(r"(?:lin|linear|const|constant|auto)(?:_[0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?)?")


def checked(key: str, value: Any, default: Any) -> tuple[Any, str]:
    """Return the value as the library would take it, and what is wrong with it ('' when nothing is).

    Args:
        default: what the algorithm's constructor has; tells truth values from numbers, and whether None is allowed.
    """
    if key in FREE or (value is None and default is None):
        return value, ""
    if key == "train_freq":
        return _train_freq(value)
    if key in SIZES:
        return whole(value, 1)
    if key in COUNTS:
        return whole(value, COUNTS[key])
    if isinstance(default, bool):
        return value, "" if isinstance(value, bool) else f"must be true or false, got {shown(value)}"
    return value, _number(value)


def whole(value: Any, least: int) -> tuple[Any, str]:
    """Return `value` as an int and '' when it is a whole number of at least `least`; 1e6 is one."""
    if isinstance(value, float) and math.isfinite(value) and value == int(value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return value, f"must be a whole number, got {shown(value)}"
    if value < least:
        return value, f"must be at least {least}, got {shown(value)}"
    if value > LARGEST:
        return value, f"is over 2**63, got {shown(value)}"
    return value, ""


def net_arch_problem(value: Any) -> str:
    """Return what is wrong with SB3's `net_arch`: a list of widths, or a mapping of such lists ('' when nothing is)."""
    lists = list(value.values()) if isinstance(value, dict) else [value]
    for widths in lists:
        if not isinstance(widths, list | tuple):
            return f"must be a list of layer widths, got {shown(widths)}"
        for width in widths:
            # before SB3 1.8: [64, {pi: [64], vf: [64]}]
            problem = net_arch_problem(width) if isinstance(width, dict) else whole(width, 1)[1]
            if problem:
                return problem
    return ""


def shown(value: Any) -> str:
    """Return `value` as its user wrote it, cut to a readable length."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and abs(value) > 10**30:
        return f"a number of {value.bit_length()} bits"
    text = "nothing" if value is None else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _train_freq(value: Any) -> tuple[Any, str]:
    if isinstance(value, list | tuple) and len(value) == 2:
        number, problem = whole(value[0], 1)
        if not problem and value[1] not in ("step", "episode"):
            problem = f"must count 'step' or 'episode', got {shown(value[1])}"
        return [number, value[1]], problem
    return whole(value, 1)


def _number(value: Any) -> str:
    if isinstance(value, str):
        ok = _SCHEDULE.fullmatch(value.strip()) is not None
        return "" if ok else f"must be a number or a schedule such as lin_2.5e-4, got {shown(value)}"
    if isinstance(value, bool) or not (value is None or isinstance(value, int | float)):
        return f"must be a number, got {shown(value)}"
    if isinstance(value, int) and abs(value) > LARGEST:
        return f"is over 2**63, got {shown(value)}"
    if isinstance(value, float) and not math.isfinite(value):
        return f"must be a finite number, got {shown(value)}"
    return ""
