"""What most likely allocated it, by the frames of the traceback: a table from frame to sentence.

The innermost frame that the table knows decides. `layout` names the axes of an array allocated there, as the library
orders them (stable_baselines3/common/buffers.py, release 2.9).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from legroom.explaining.frames import Frame

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
    Cause(
        "activations", r"nn/modules/(?!module\.py \| (?:to|_apply|convert|cuda))|nn/functional|/torch_layers",
        "activations of the forward pass; grows with the batch",
    ),
    Cause(
        "load", r"torch/serialization|load_state_dict|\bload\(",
        "loading a checkpoint beside the model that is there already",
    ),
    Cause(
        "transfer", r"\.to\(|\.cuda\(|as_tensor|(?:th|torch)\.tensor|from_numpy|module\.py \| (?:to|_apply|convert)",
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
