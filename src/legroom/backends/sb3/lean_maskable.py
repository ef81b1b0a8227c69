"""The rollout buffers of sb3-contrib's MaskablePPO in little memory: masks are kept as bits."""

from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from sb3_contrib.common.maskable.buffers import MaskableDictRolloutBuffer, MaskableRolloutBuffer

from legroom.backends.sb3.lean_rollout import LeanDictRolloutBuffer, LeanRolloutBuffer
from legroom.storing.small_arrays import Masks


class LeanMaskableRolloutBuffer(LeanRolloutBuffer, MaskableRolloutBuffer):
    """sb3-contrib's maskable rollout buffer in less memory; arguments as in `LeanRolloutBuffer`."""

    small_arrays: ClassVar[tuple[str, ...]] = (*LeanRolloutBuffer.small_arrays, "action_masks")

    @classmethod
    def _dict_form(cls) -> type:
        return LeanMaskableDictRolloutBuffer

    def reset(self) -> None:
        """Forget the rollout; masks are all ones until they are given."""
        self.mask_dims = _mask_dims(self.action_space)
        self.action_masks = Masks(self.buffer_size, self.n_envs, self.mask_dims)  # type: ignore[assignment]
        LeanRolloutBuffer.reset(self)

    def add(self, *args: Any, action_masks: np.ndarray | None = None, **kwargs: Any) -> None:
        """Add one step of every environment, with the masks of its actions."""
        pos = self.pos
        LeanRolloutBuffer.add(self, *args, **kwargs)
        if action_masks is not None:
            self.action_masks[pos] = action_masks.reshape((self.n_envs, self.mask_dims))

    def _flatten(self) -> None:
        super()._flatten()
        self.action_masks.flatten()


class LeanMaskableDictRolloutBuffer(LeanMaskableRolloutBuffer, LeanDictRolloutBuffer, MaskableDictRolloutBuffer):
    """sb3-contrib's maskable Dict rollout buffer in less memory."""

    _get_samples = MaskableDictRolloutBuffer._get_samples  # type: ignore[assignment]


def _mask_dims(space: spaces.Space[Any]) -> int:
    """Return the numbers in one action mask, as sb3-contrib counts them."""
    if isinstance(space, spaces.Discrete):
        return int(space.n)
    if isinstance(space, spaces.MultiDiscrete):
        return int(sum(space.nvec))
    if isinstance(space, spaces.MultiBinary):
        assert isinstance(space.n, int), (
            f"Multi-dimensional MultiBinary({space.n}) action space is not supported. You can flatten it instead."
        )
        return 2 * space.n
    raise ValueError(f"Unsupported action space {type(space)}")
