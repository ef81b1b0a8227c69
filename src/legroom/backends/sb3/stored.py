"""What the buffers of an SB3 run hold of one observation, and how many rows they get to hold.

Shared by the rollout, the replay, the environments and the update, so that they agree to the byte; and by the measuring
of an update in a child process, which has to know what else that child has in memory.

Mirrors DummyVecEnv, SubprocVecEnv, VecFrameStack, VecTransposeImage and VecNormalize of stable-baselines3 2.9.2 and
`Box` of gymnasium 1.2.
"""

import math
import re
from collections.abc import Mapping
from typing import Literal

from legroom.backends.base import algorithm_of, hyper
from legroom.environments.images import is_image, stacked
from legroom.model.evidence import EnvTask, NetTrace
from legroom.model.facts import Algorithm, spaces_of
from legroom.model.footprint import Phase
from legroom.model.run import EnvSpec, MemorySpec, Run
from legroom.model.spaces import DTYPES, BoxSpace, DictSpace, Leaf, Space, leaves
from legroom.storing.core import WHY_NOT

FLOAT32 = 4
LOADED = ("torch", "stable_baselines3")  # what the training process and SB3's workers have imported anyway
BRINGS = ("torch", "stable_baselines3", "cv2", "sympy")  # and what of it environments import too
# DummyVecEnv: its own array, the copy of the last step (kept as _last_obs), and that of this step; plus the array the
# buffer's add() makes while it stores. SubprocVecEnv: the unpickled ones in place of its own array.
COPIES_IN_TRAINER = 4
# whose update `backends.sb3.updates` can compute in pieces
MICRO_BATCHED = ("PPO", "MaskablePPO", "A2C", "DQN", "DoubleDQN")
PLAIN_DTYPE_SINCE = (2, 7, 1)  # SB3 before it kept rollouts in float32, whatever the space's dtype


def stored_observation(run: Run) -> Space:
    """Return the observation as a buffer stores it."""
    return stacked(spaces_of(run)[0], run.env.frame_stack)


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


def mask_size(action: Leaf | DictSpace) -> int:
    """Return the number of action-mask entries sb3-contrib keeps per step."""
    match action.type:
        case "discrete":
            return action.n
        case "multidiscrete":
            return sum(action.nvec)
        case "multibinary":
            return 2 * action.nbytes
    return 0


def rollout_rows(run: Run) -> int | None:
    """Return the steps per environment that an on-policy run stores before it updates, None for other families."""
    steps = hyper(run, "n_steps")
    return int(steps) if algorithm_of(run).family == "on-policy" and steps is not None else None


def replay_rows(run: Run) -> int | None:
    """Return the ring's rows, one transition of each environment; it may hold fewer transitions than asked for."""
    size = hyper(run, "buffer_size")
    if algorithm_of(run).family != "off-policy" or size is None:
        return None
    return max(int(size) // run.env.n_envs, 1)


def rollout_samples(run: Run) -> int:
    """Return the transitions in one rollout of an on-policy run, all environments together."""
    return int(hyper(run, "n_steps") or 1) * run.env.n_envs


def batch_samples(run: Run) -> int:
    """Return the transitions in one gradient step: the minibatch, or the whole rollout where the algorithm has none."""
    size = hyper(run, "batch_size")
    if algorithm_of(run).family == "on-policy":
        whole = rollout_samples(run)
        return whole if size is None or algorithm_of(run).name == "TRPO" else min(int(size), whole)
    return int(size) if size else 1


def pass_samples(run: Run) -> int:
    """Return the most transitions that go through the networks at once: a micro-batch, or the whole minibatch.

    A schedule of micro-batches that begins later than the run begins with whole ones.
    """
    whole, micro = batch_samples(run), run.memory.micro_batch
    if not micro or algorithm_of(run).name not in MICRO_BATCHED:
        return whole
    steps = ((0, micro),) if isinstance(micro, int) else micro
    return min(whole, max(size for _, size in steps)) if steps[0][0] == 0 else whole


def iterations(run: Run) -> float:
    """Return how many rollouts an on-policy run collects; infinite when its length is not said."""
    if run.total_timesteps is None:
        return math.inf
    return math.ceil(run.total_timesteps / rollout_samples(run))


def updates(run: Run) -> float:
    """Return how many minibatches the run learns from; infinite when its length is not said."""
    if run.total_timesteps is None:
        return math.inf
    if algorithm_of(run).family == "on-policy":
        each = -(-rollout_samples(run) // batch_samples(run)) * int(hyper(run, "n_epochs") or 1)
        return iterations(run) * each
    steps = max(run.total_timesteps - int(hyper(run, "learning_starts") or 0), 0)
    frequency, gradient_steps = hyper(run, "train_freq"), hyper(run, "gradient_steps")
    every = frequency if isinstance(frequency, int) else 1
    if not isinstance(gradient_steps, int) or gradient_steps < 0:  # as many as steps were made
        return steps
    return steps * gradient_steps / max(every * run.env.n_envs, 1)


def written_rows(run: Run, ring: int) -> int:
    """Return how many of the ring's rows the run gets to write: all, unless it ends before."""
    if run.total_timesteps is None:
        return ring
    return min(ring, math.ceil(run.total_timesteps / run.env.n_envs))


def keeps_float32(versions: Mapping[str, str]) -> bool:
    """Return whether this SB3 stores every rollout as float32; an unknown version is taken for a current one."""
    numbers = re.match(r"(\d+)\.(\d+)(?:\.(\d+))?", versions.get("stable-baselines3", ""))
    return numbers is not None and tuple(int(n or 0) for n in numbers.groups()) < PLAIN_DTYPE_SINCE


def may_store_leanly(run: Run) -> bool:
    """Return whether lean storage can hold what the run stores: not LSTM states, hindsight, or a user's own buffer."""
    algorithm = algorithm_of(run)
    if WHY_NOT or algorithm.recurrent or algorithm.family == "evolution":
        return False
    return _buffer_class(run) in (None, "") or stores_leanly(run)


def env_task(run: Run) -> EnvTask:
    """Return how the environment is to be looked at, and what its observations are stored as, if they may be leanly."""
    if not may_store_leanly(run):
        return EnvTask(LOADED, BRINGS)
    algorithm, normalize = algorithm_of(run), run.env.normalize if isinstance(run.env.normalize, dict) else {}
    storage = {
        "kind": "rollout" if algorithm.family == "on-policy" else "replay",
        "frame_stack": run.env.frame_stack or 1,
        "normalize": normalize if normalizes_observations(run) else None,
    }
    return EnvTask(LOADED, BRINGS, storage)


def stores_leanly(run: Run) -> bool:
    """Return whether the run as it is written uses lean storage: by `memory`, or by the class it gives to SB3."""
    said = storage_said(run)
    return said == "lean" or (said is None and "Lean" in str(_buffer_class(run)).rpartition(":")[2])


def storage_said(run: Run) -> Literal["plain", "lean"] | None:
    """Return which storage `memory` asks for, of the kind that the algorithm has."""
    family = algorithm_of(run).family
    return {"on-policy": run.memory.rollout, "off-policy": run.memory.replay}.get(family)


def _buffer_class(run: Run) -> object:
    on_policy = algorithm_of(run).family == "on-policy"
    return hyper(run, "rollout_buffer_class" if on_policy else "replay_buffer_class")


def lstm_elements(run: Run, algorithm: Algorithm) -> int:
    """Return the numbers of one LSTM state per environment: layers x hidden size; 0 without LSTM."""
    if not algorithm.recurrent:
        return 0
    return int(run.policy.kwargs.get("n_lstm_layers", 1)) * int(run.policy.kwargs.get("lstm_hidden_size", 256))


def bounds_nbytes(space: Space) -> int:
    """Return what gymnasium keeps as low, high, bounded_below and bounded_above."""
    boxes = (leaf for leaf in leaves(space).values() if isinstance(leaf, BoxSpace))
    return sum(math.prod(box.shape) * (2 * DTYPES[box.dtype] + 2) for box in boxes)


def wrapper_bounds_nbytes(run: Run) -> int:
    """Return the bounds of the new spaces that stacking and transposing wrappers make."""
    observation, _ = spaces_of(run)
    stack = run.env.frame_stack or 1
    bounds = stack * bounds_nbytes(observation) if stack > 1 else 0
    images = sum(bounds_nbytes(leaf) for leaf in leaves(observation).values() if is_image(leaf))
    return bounds + stack * images


def in_flight_nbytes(run: Run) -> int:
    """Return what a trainer with its environments inside holds for them while it steps, the instances apart."""
    observation, _ = spaces_of(run)
    nbytes = bounds_nbytes(observation) * run.env.n_envs + wrapper_bounds_nbytes(run)
    return nbytes + COPIES_IN_TRAINER * run.env.n_envs * observation_nbytes(run)


def update_nbytes(net: NetTrace) -> int:
    """Return the tensors of one update at its peak, beyond weights, gradients and optimizer state."""
    return sum(net.transient.get(Phase.UPDATE, {}).values())


def gather_excess(net: NetTrace) -> int:
    """Return by how much making a minibatch exceeds the peak of working with it.

    While it is made there are the gathered NumPy arrays, their tensors, and the previous minibatch, still referenced.
    """
    return max(3 * net.transient.get(Phase.UPDATE, {}).get("batch", 0) - update_nbytes(net), 0)


def one_env(run: Run) -> Run:
    """Return the run with a single environment, in this process: an update's memory does not depend on them."""
    env = run.env.model_copy(update={"n_envs": 1, "workers": "dummy", "envs_per_worker": 1})
    return run.model_copy(update={"env": env})


# What of `memory` the measured update depends on; the rest is about storage, processes and the CUDA allocator.
_SEEN_BY_NETS = ("micro_batch", "activation_checkpointing", "bf16")
_SEEN_OF_ENV = ("n_envs", "spaces", "frame_stack", "normalize")


def network_key(run: Run) -> str:
    """Return a key that variants share whose networks and updates are the same, so that one trace serves them all."""
    env = EnvSpec(**{name: getattr(run.env, name) for name in _SEEN_OF_ENV})
    memory = MemorySpec(**{name: getattr(run.memory, name) for name in _SEEN_BY_NETS})
    hyperparams = {key: value for key, value in run.hyperparams.items() if key != "buffer_size"}
    seen = (run.algo, run.algo_class, run.policy, env, memory, hyperparams, run.device)
    return repr((*seen, None if run.env.spaces else run.env.id))


_CLASS = re.compile(r"'([A-Za-z_]\w*)[\w.]*:\w+'")  # as runs name them: 'torch.nn:ReLU'
_OF_LIBRARIES = {"torch", "stable_baselines3", "sb3_contrib"}


def has_own_classes(run: Run) -> bool:
    """Return whether networks or updates are of the user's own classes, which may change without their names."""
    made_of = repr((run.policy, run.algo_class, run.hyperparams))
    return "live:" in made_of or ".py" in made_of or not set(_CLASS.findall(made_of)) <= _OF_LIBRARIES
