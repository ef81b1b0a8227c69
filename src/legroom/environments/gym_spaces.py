"""Convert between the spaces of a run file and gymnasium's.

The run file's spaces exist without gymnasium, so that a prediction by arithmetic imports nothing heavy; libraries want
the real ones. Going there and back keeps everything that memory depends on: kind, shape, dtype and, where they are
the same for every element, the bounds (SB3 takes a uint8 box for an image only if they are 0 and 255).
"""

from typing import Any, cast

import numpy as np
from gymnasium import spaces as gym

from legroom.errors import BadInput
from legroom.model import spaces as declared
from legroom.model.spaces import DTYPES, Space


def to_gymnasium(space: Space) -> gym.Space[Any]:
    """Return the gymnasium space that `space` declares.

    Raises:
        BadInput: its bounds do not fit its dtype.
    """
    match space:
        case declared.BoxSpace():
            low, high = space.bounds
            try:
                return gym.Box(low, high, space.shape, np.dtype(space.dtype).type)
            except (ValueError, OverflowError) as wrong:
                raise BadInput(f"box bounds {low}..{high} do not fit dtype {space.dtype}: {wrong}") from wrong
        case declared.DiscreteSpace():
            return gym.Discrete(space.n)
        case declared.MultiDiscreteSpace():
            return gym.MultiDiscrete(list(space.nvec))
        case declared.MultiBinarySpace():
            return gym.MultiBinary(space.n if isinstance(space.n, int) else list(space.n))
        case declared.DictSpace():
            return gym.Dict({key: to_gymnasium(sub) for key, sub in space.spaces.items()})


def from_gymnasium(space: gym.Space[Any]) -> Space:
    """Return what a run file would declare for `space`; bounds that differ by element are left at their defaults.

    Raises:
        BadInput: SB3 takes no such space (Tuple, Text, Graph, object dtypes).
    """
    match space:
        case gym.Box():
            if space.dtype is None or space.dtype.name not in DTYPES:
                raise BadInput(f"a box of dtype {space.dtype} is not supported", hint=f"one of {', '.join(DTYPES)}")
            return declared.BoxSpace(
                shape=space.shape, dtype=cast(Any, space.dtype.name), low=_uniform(space.low), high=_uniform(space.high)
            )
        case gym.Discrete():
            return declared.DiscreteSpace(n=int(space.n))
        case gym.MultiDiscrete():
            return declared.MultiDiscreteSpace(nvec=tuple(int(n) for n in space.nvec.reshape(-1)))
        case gym.MultiBinary():
            return declared.MultiBinarySpace(n=space.n if isinstance(space.n, int) else tuple(int(n) for n in space.n))
        case gym.Dict():
            return declared.DictSpace(spaces={key: from_gymnasium(sub) for key, sub in space.spaces.items()})
    raise BadInput(
        f"a {type(space).__name__} space is not supported", hint="box, discrete, multidiscrete, multibinary or dict"
    )


def _uniform(bounds: Any) -> float | None:
    # An infinite bound stays infinite: it is part of whether SB3 sees an image.
    low = float(bounds.min()) if bounds.size else None
    return low if low is not None and low == float(bounds.max()) else None
