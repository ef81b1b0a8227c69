"""gymnasium's spaces as plain data, and back, with every bound: what a Run keeps of them is enough for memory only.

A checkpoint holds the spaces that the policy was made for, behind all wrappers. So a resumed run is known to fit before
anything is touched, and an archive for SB3 can be made without making the environment.
"""

from typing import Any

import numpy as np
from gymnasium import spaces

from legroom.errors import BadInput


def describe_space(space: spaces.Space[Any]) -> dict[str, Any]:
    """Return the space as a tree of plain values and arrays.

    Raises:
        BadInput: SB3 takes no such space.
    """
    match space:
        case spaces.Box():
            bounds = {"low": _short(space.low), "high": _short(space.high)}
            return {"type": "box", "shape": list(space.shape), "dtype": space.dtype.str, **bounds}  # type: ignore[union-attr]
        case spaces.Discrete():
            return {"type": "discrete", "n": int(space.n), "start": int(space.start)}
        case spaces.MultiDiscrete():
            return {"type": "multidiscrete", "nvec": space.nvec, "start": space.start, "dtype": space.dtype.str}  # type: ignore[union-attr]
        case spaces.MultiBinary():
            return {"type": "multibinary", "n": space.n if isinstance(space.n, int) else [int(n) for n in space.n]}
        case spaces.Dict():
            return {"type": "dict", "spaces": {key: describe_space(part) for key, part in space.spaces.items()}}
    raise BadInput(f"a {type(space).__name__} space is not supported", hint="box, discrete, multidiscrete, multibinary")


def make_space(tree: dict[str, Any]) -> spaces.Space[Any]:
    """Return the space that `describe_space` described.

    Raises:
        BadInput: it describes none.
    """
    try:
        match tree["type"]:
            case "box":
                shape, dtype = tuple(tree["shape"]), np.dtype(tree["dtype"])
                low, high = (np.broadcast_to(tree[side], shape).astype(dtype) for side in ("low", "high"))
                return spaces.Box(low, high, shape, dtype.type)
            case "discrete":
                return spaces.Discrete(tree["n"], start=tree["start"])
            case "multidiscrete":
                return spaces.MultiDiscrete(tree["nvec"], dtype=np.dtype(tree["dtype"]).type, start=tree["start"])
            case "multibinary":
                return spaces.MultiBinary(tree["n"])
            case "dict":
                return spaces.Dict({key: make_space(part) for key, part in tree["spaces"].items()})
    except (KeyError, ValueError, TypeError, AssertionError) as error:
        raise BadInput(f"a space of the checkpoint is damaged: {error}") from error
    raise BadInput(f"a space of the checkpoint is of unknown type {tree['type']!r}")


def _short(bounds: np.ndarray) -> np.ndarray | np.generic:
    """Return one number where all are the same: bounds are as large as two observations otherwise."""
    first = bounds.reshape(-1)[:1]
    return first[0] if bounds.size and bool((bounds == first).all()) else bounds
