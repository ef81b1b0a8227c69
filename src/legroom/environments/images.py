"""Which observations are images, and what stacking frames and moving channels to the front make of them.

Mirrors `preprocessing.is_image_space`, VecFrameStack (`StackedObservations`) and VecTransposeImage of
stable-baselines3 2.9, which RLlib's runs follow too, since their networks are the same.
"""

from legroom.model.spaces import BoxSpace, DictSpace, Space


def is_image(space: Space) -> bool:
    """Return whether it is taken for an image: 3 axes, uint8, 0..255."""
    return isinstance(space, BoxSpace) and len(space.shape) == 3 and space.dtype == "uint8" and space.bounds == (0, 255)


def stacked(observation: Space, frame_stack: int | None) -> Space:
    """Return the observation as a buffer stores it: stacked, and with channels first where it is an image."""
    if isinstance(observation, DictSpace):
        # VecTransposeImage leaves keys alone that are no image
        return DictSpace(spaces={key: _stacked_leaf(sub, frame_stack) for key, sub in observation.spaces.items()})
    return _stacked_leaf(observation, frame_stack)


def _stacked_leaf(space: Space, frame_stack: int | None) -> Space:
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
    """Return whether the last axis is moved to the front before an observation is stored (VecTransposeImage)."""
    return isinstance(space, BoxSpace) and is_image(space) and not _channels_first(space)


def _channels_first(space: BoxSpace) -> bool:
    # SB3's is_image_space_channels_first: the smallest axis is the channel axis
    return is_image(space) and space.shape.index(min(space.shape)) == 0
