"""What most likely allocated it, by the frames of the traceback: a table from frame to sentence.

The innermost frame that the table knows decides. `layout` names the axes of an array allocated there, as the library
orders them (stable_baselines3/common/buffers.py, release 2.9): (2048, 4, 17, 49, 71, 58) is n_steps × n_envs ×
observation. Without a traceback the shape itself is read, which is a guess: an array of five or more axes holds images
or grids for steps and environments, and a first axis of fifty thousand and more is a replay buffer's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod

from legroom.explaining.frames import Frame
from legroom.explaining.sizes import item_bytes
from legroom.model.explanation import Dimension
from legroom.units import format_size

Layout = tuple[str, ...]  # names of the leading axes; the last name stands for all axes that follow

ROLLOUT: Layout = ("n_steps", "n_envs", "observation")
FLATTENED: Layout = ("n_envs", "n_steps", "observation")  # NumPy copies the transposed view before it is reshaped
REPLAY: Layout = ("buffer rows", "n_envs", "observation")
RING: Layout = ("capacity", "item")
STACKED: Layout = ("n_envs", "observation")
BATCH: Layout = ("batch", "observation")


@dataclass(frozen=True)
class Cause:
    """Code that allocates and what it is for.

    Args:
        name: what advice depends on; several rows may share one.
        pattern: searched in `path | function | code`, without regard to case.
        near: only the innermost three frames count: its words are so common that a caller's line may hold them too.
    """

    name: str
    pattern: str
    say: str
    layout: Layout | None = None
    near: bool = False


NEAR = 3
CAUSES = (
    Cause(
        "flatten", r"swap_and_flatten",
        "SB3's flatten copy: the whole rollout once more, before the first minibatch", FLATTENED,
    ),
    Cause(
        "rollout", r"buffers\.py \| reset",
        "SB3's rollout buffer: every observation of a rollout in one array; the update needs a second copy", ROLLOUT,
    ),
    Cause(
        "replay", r"(?:stable_baselines3?|sb3|common)/.{0,40}buffers\.py \| __init__",
        "SB3's replay buffer: it keeps obs and next_obs, so the same again follows", REPLAY,
    ),
    Cause("sample", r"buffers\.py \| (?:sample|_get_samples|to_torch|get)\b", "a minibatch from SB3's buffer", BATCH),
    Cause("rollout", r"rollout_?buffer|RolloutStorage", "a rollout buffer: every observation of a rollout", ROLLOUT,
          near=True),
    Cause("replay", r"replay|experience", "a replay buffer, allocated for its full capacity at the start", RING,
          near=True),
    Cause("stack", r"stacked_observations|vec_frame_stack", "the frame stack of all environments", STACKED),
    Cause(
        "stack", r"vec_env/|vector_env|async_vector|sync_vector",
        "the observations of all environments of one step", STACKED,
    ),
    Cause(
        "optimizer", r"torch/optim/|_foreach_|exp_avg",
        "the optimizer: Adam keeps two more copies of every parameter, its foreach form temporary ones too",
    ),
    Cause(
        "backward", r"autograd/|\.backward\(",
        "the backward pass: gradients on top of the activations kept since the forward pass; grows with the batch",
    ),
    Cause(
        "conv", r"nn/modules/conv|F\.conv|conv[123]d",
        "a convolution: its output and cuDNN's workspace; grows with the batch",
    ),
    Cause("model", r"module\.py \| (?:to|_apply|convert|cuda)\b|\._apply\(", "moving a model's weights to the device"),
    Cause(
        "activations", r"nn/modules/|nn/functional|/torch_layers",
        "activations of the forward pass; grows with the batch",
    ),
    Cause(
        "load", r"torch/serialization|load_state_dict|\bload\(",
        "loading a checkpoint beside the model that is there already",
    ),
    Cause(
        "transfer", r"\.to\(|\.cuda\(|as_tensor|(?:th|torch)\.tensor|from_numpy",
        "copying data or a model to the device",
    ),
    Cause("space", r"gym(?:nasium)?/spaces/", "the bounds of a space, which are arrays of its shape"),
    Cause("physics", r"brax/|mujoco/mjx|mujoco_playground", "brax/MJX: the state and temporaries of all environments"),
    Cause("sample-batches", r"ray/rllib", "RLlib's sample batches"),
    Cause("data", r"pandas/|read_csv|genfromtxt|loadtxt", "reading a table"),
    Cause(
        "concatenate", r"np\.(?:concatenate|stack|vstack|array)\(|deepcopy", "a copy of arrays that are there already"
    ),
)  # fmt: skip
# Without a traceback the shape speaks; keyed by the name that `dimensions` gave its first axis.
BY_SHAPE = {
    "n_steps": Cause(
        "rollout", "", "by its shape a rollout buffer: every observation of a rollout, and a copy at update"
    ),
    "buffer rows": Cause("replay", "", "by its shape a replay buffer; it keeps obs and next_obs, so the same follows"),
    "capacity": Cause("replay", "", "by its shape a replay buffer, allocated for its full capacity at the start"),
}
REPLAY_ROWS = 50_000
_KEYS = {"n_steps": "n_steps", "buffer rows": "buffer_size", "capacity": "buffer_size", "batch": "batch_size"}
_SMALLER = {"n_steps": 8, "buffer rows": 10, "capacity": 10, "batch": 4}
_PATTERNS = tuple(re.compile(cause.pattern, re.IGNORECASE) for cause in CAUSES)


def likely_cause(frames: tuple[Frame, ...]) -> tuple[Cause | None, Frame | None]:
    """Return what the table knows about the innermost frame it knows, and that frame."""
    for depth, frame in enumerate(reversed(frames)):
        for cause, pattern in zip(CAUSES, _PATTERNS, strict=True):
            if (depth < NEAR or not cause.near) and pattern.search(frame.signature):
                return cause, frame
    return None, None


def cause_text(cause: Cause | None, frame: Frame | None, frames: tuple[Frame, ...]) -> str:
    """Return the sentence: what it was, and where the user's own code stands."""
    own = next((f for f in reversed(frames) if not f.library), None)
    where = f"{own.name}:{own.line}" if own else f"{frame.name}:{frame.line}" if frame else ""
    if cause is None:
        return f"the line is {where}" if where else ""
    return f"{cause.say} ({where})" if where else cause.say


def name_dimensions(shape: tuple[int, ...] | None, layout: Layout | None) -> tuple[Dimension, ...]:
    """Return the factors of the shape, named by the layout, or by the look of the shape where there is none."""
    if not shape:
        return ()
    layout = layout if layout and len(shape) >= len(layout) - 1 else _guess(shape)
    if layout is None:
        return ()
    leading = len(layout) - 1
    named = [Dimension(name, (size,)) for name, size in zip(layout, shape[:leading], strict=False)]
    rest = shape[leading:]
    return (*named, Dimension(layout[-1], rest)) if rest else tuple(named)


def smaller(dimensions: tuple[Dimension, ...], dtype: str | None) -> str:
    """Return what turning the dimension that multiplies most freely would ask: `n_steps 256 instead of 2,048 …`."""
    each = item_bytes(dtype)
    for dimension in dimensions:
        parts = _SMALLER.get(dimension.name)
        if parts is None or each is None or dimension.sizes[0] < 4 * parts:
            continue
        size = dimension.sizes[0]
        total = prod(prod(d.sizes) for d in dimensions) * each // size * (size // parts)
        return f"{_KEYS[dimension.name]} {size // parts:,} instead of {size:,} would ask {format_size(total)}"
    return ""


def _guess(shape: tuple[int, ...]) -> Layout | None:
    if len(shape) >= 5 and shape[1] <= 4096:
        return REPLAY if shape[0] >= REPLAY_ROWS else ROLLOUT
    return RING if len(shape) >= 3 and shape[0] >= REPLAY_ROWS else None
