"""What follows from a Run alone: the shapes and counts that predicting, fitting and training share.

One place, so that no two parts of legroom disagree about what a run stores or how many updates it makes.
"""

from __future__ import annotations

from typing import Any

from legroom.backends.base import algorithm_of, hyper
from legroom.errors import BadInput
from legroom.model.run import Run
from legroom.model.spaces import BoxSpace, DictSpace, Leaf, Space


def spaces_of(run: Run) -> tuple[Space, Space]:
    """Return the declared observation and action spaces.

    Raises:
        BadInput: the run has none and its environment was not built.
    """
    if run.env.spaces is None:
        raise BadInput(
            f"the spaces of env {run.env.id!r} are not known",
            path=run.source,
            hint="declare env.spaces in the file or with --set env.spaces=..., or use --mode trace to build the env",
        )
    return run.env.spaces.observation, run.env.spaces.action


def is_image(space: Space) -> bool:
    """Return whether SB3 takes it for an image: 3 axes, uint8, 0..255 (`preprocessing.is_image_space`)."""
    return isinstance(space, BoxSpace) and len(space.shape) == 3 and space.dtype == "uint8" and space.bounds == (0, 255)


def stored_observation(run: Run) -> Space:
    """Return the observation as a buffer stores it: stacked, and with channels first where it is an image.

    Mirrors VecFrameStack (`StackedObservations`) and VecTransposeImage of stable-baselines3 2.9.
    """
    observation, _ = spaces_of(run)
    if run.backend == "brax":
        return observation
    if isinstance(observation, DictSpace):
        # VecTransposeImage leaves keys alone that are no image
        return DictSpace(
            spaces={key: _stored_leaf(sub, run.env.frame_stack) for key, sub in observation.spaces.items()}
        )
    return _stored_leaf(observation, run.env.frame_stack)


def _stored_leaf(space: Any, frame_stack: int | None) -> Any:
    if not isinstance(space, BoxSpace):
        return space
    shape = space.shape
    if frame_stack and frame_stack > 1:
        axis = stacking_axis(space)
        shape = tuple(n * frame_stack if i == axis else n for i, n in enumerate(shape))
    if is_transposed(space):
        shape = (shape[2], shape[0], shape[1])
    return space.model_copy(update={"shape": shape})


def stacking_axis(space: BoxSpace) -> int:
    """Return the axis that VecFrameStack puts frames along."""
    return 0 if _channels_first(space) else len(space.shape) - 1


def is_transposed(space: Space) -> bool:
    """Return whether SB3 moves the last axis to the front before it stores an observation (VecTransposeImage)."""
    return isinstance(space, BoxSpace) and is_image(space) and not _channels_first(space)


def _channels_first(space: BoxSpace) -> bool:
    # SB3's is_image_space_channels_first: the smallest axis is the channel axis
    return is_image(space) and space.shape.index(min(space.shape)) == 0


def n_envs(run: Run) -> int:
    return run.env.n_envs


def n_workers(run: Run) -> int:
    """Return how many environment processes there are; none when the environments live in the training process."""
    if run.env.workers == "dummy":
        return 0
    return -(-run.env.n_envs // run.env.envs_per_worker)


def rollout_rows(run: Run) -> int | None:
    """Return the steps per environment an on-policy SB3 run stores before it updates, None for other families."""
    return int(hyper(run, "n_steps")) if algorithm_of(run).family == "on-policy" and run.backend != "brax" else None


def replay_rows(run: Run) -> int | None:
    """Return the ring's rows, one transition of each environment; it may hold fewer transitions than asked for."""
    if algorithm_of(run).family != "off-policy" or run.backend == "brax":
        return None
    return max(int(hyper(run, "buffer_size")) // run.env.n_envs, 1)


def episode_limit(run: Run) -> int | None:
    """Return the most steps an episode has: by a TimeLimit of the run, by the run, or by the known environment."""
    limits = [
        wrapper[name].get("max_episode_steps")
        for wrapper in run.env.wrappers
        if isinstance(wrapper, dict)
        for name in wrapper
        if str(name).rpartition(".")[2].rpartition(":")[2] == "TimeLimit" and isinstance(wrapper[name], dict)
    ]
    limits += [run.env.kwargs.get("max_episode_steps"), run.env.episode_steps]
    known = [limit for limit in limits if isinstance(limit, int) and not isinstance(limit, bool) and limit > 0]
    return known[0] if known else None


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
