"""The layers and extractors of SB3 as sizes (`model.workload`).

Mirrors common/torch_layers.py of stable-baselines3 2.9.2.
"""

import math
from typing import Any

from legroom.model.spaces import BoxSpace, Space
from legroom.model.workload import Net, convolutions

NATURE_CNN = ((32, 8, 4, 0), (64, 4, 2, 0), (64, 3, 1, 0))  # out channels, kernel, stride, padding


def last(layers: Any, width: int) -> int:
    """Return the width after some layers."""
    return int(layers[-1]) if len(layers) else width


def norms(widths: Any) -> Net:
    """Return batch normalisations; input and normalised input are kept."""
    return Net(2 * sum(widths), 2 * sum(widths), max(widths), 1, widest_outside=max(widths))


def lstm(width: int, hidden: int, layers: int) -> Net:
    """Return an LSTM; four gates, cell and output are kept."""
    parameters = sum(4 * hidden * ((width if layer == 0 else hidden) + hidden + 2) for layer in range(layers))
    largest = 4 * hidden * max(width, hidden)
    return Net(parameters, 6 * hidden * layers, 4 * hidden, hidden, largest=largest, widest_outside=4 * hidden)


def nature_cnn(shape: tuple[int, ...], features: int) -> Net:
    """Return SB3's `NatureCNN`: a container of convolutions, then one linear layer."""
    return convolutions(shape, NATURE_CNN, features, convert=True)


def flatten(space: Space) -> Net:
    """Return SB3's `FlattenExtractor`."""
    width = flattened(space)
    # A float32 box is used as it is; anything else is converted or one-hot encoded into a new array.
    converted = 0 if isinstance(space, BoxSpace) and space.dtype == "float32" else width
    return Net(0, converted, 0, width, converted)


def flattened(space: Space) -> int:
    """Return how many numbers an observation is once it is flat and encoded."""
    match space.type:
        case "discrete":
            return space.n
        case "multidiscrete":
            return sum(space.nvec)
        case "dict":
            return sum(flattened(sub) for sub in space.spaces.values())
    return math.prod(space.shape)


def image_shape(space: Space) -> tuple[int, ...]:
    """Return the shape as a CNN sees it."""
    return space.shape if isinstance(space, BoxSpace) and len(space.shape) > 1 else (1, flattened(space))
