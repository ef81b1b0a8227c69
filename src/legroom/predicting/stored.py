"""What the buffers of an SB3 run hold of one observation, and how many rows they get to hold.

Shared by the rollout, the replay, the environments and the update, so that they agree to the byte.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from legroom.model.algorithms import Algorithm
from legroom.model.facts import algorithm_of, hyper, is_image, stored_observation
from legroom.model.run import Run
from legroom.model.spaces import DTYPES, Leaf, leaves

FLOAT32 = 4
PLAIN_DTYPE_SINCE = (2, 7, 1)  # SB3 before it kept rollouts in float32, whatever the space's dtype


def observation_leaves(run: Run) -> dict[str, tuple[int, str]]:
    """Return `key -> (elements, dtype)` of the observation as SB3's buffers see it, stacked and transposed.

    VecNormalize turns an image space into float32 (its other outputs keep the dtype of the space).
    """
    normalized = normalizes_observations(run)
    return {
        key: (math.prod(leaf.shape), "float32" if normalized and is_image(leaf) else leaf.dtype)
        for key, leaf in leaves(stored_observation(run)).items()
    }


def observation_nbytes(run: Run) -> int:
    """Return the bytes of one stored observation, all keys together."""
    return sum(elements * DTYPES[dtype] for elements, dtype in observation_leaves(run).values())


def observation_elements(run: Run) -> int:
    """Return the numbers in one stored observation, all keys together."""
    return sum(elements for elements, _ in observation_leaves(run).values())


def normalizes_observations(run: Run) -> bool:
    """Return whether a VecNormalize rewrites observations."""
    settings = run.env.normalize
    return bool(settings) and (not isinstance(settings, dict) or settings.get("norm_obs", True) is not False)


def actions_nbytes(action: Leaf, *, replay: bool) -> int:
    """Return the bytes of one stored action; a replay buffer keeps float64 actions as float32."""
    dtype = "float32" if replay and action.dtype == "float64" else action.dtype
    return math.prod(action.shape) * DTYPES[dtype]


def batch_samples(run: Run) -> int:
    """Return the transitions in one gradient step: the minibatch, or the whole rollout where the algorithm has none."""
    size = hyper(run, "batch_size")
    rows = hyper(run, "n_steps")
    if algorithm_of(run).family == "on-policy":
        whole = int(rows or 1) * run.env.n_envs
        return whole if size is None or algorithm_of(run).name == "TRPO" else min(int(size), whole)
    return int(size) if size else 1


def iterations(run: Run) -> float:
    """Return how many rollouts an on-policy run collects; infinite when its length is not said."""
    if run.total_timesteps is None:
        return math.inf
    return math.ceil(run.total_timesteps / (int(hyper(run, "n_steps") or 1) * run.env.n_envs))


def written_rows(run: Run, ring: int) -> int:
    """Return how many of the ring's rows the run gets to write: all, unless it ends before."""
    if run.total_timesteps is None:
        return ring
    return min(ring, math.ceil(run.total_timesteps / run.env.n_envs))


def keeps_float32(versions: Mapping[str, str]) -> bool:
    """Return whether this SB3 stores every rollout as float32; an unknown version is taken for a current one."""
    numbers = re.match(r"(\d+)\.(\d+)(?:\.(\d+))?", versions.get("stable-baselines3", ""))
    return numbers is not None and tuple(int(n or 0) for n in numbers.groups()) < PLAIN_DTYPE_SINCE


def is_sb3(run: Run) -> bool:
    """Return whether the run is trained by SB3 (RLlib and brax have parts of their own)."""
    return run.backend == "sb3"


def lstm_elements(run: Run, algorithm: Algorithm) -> int:
    """Return the numbers of one LSTM state per environment: layers x hidden size; 0 without LSTM."""
    if not algorithm.recurrent:
        return 0
    return int(run.policy.kwargs.get("n_lstm_layers", 1)) * int(run.policy.kwargs.get("lstm_hidden_size", 256))
