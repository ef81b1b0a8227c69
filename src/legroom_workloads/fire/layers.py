"""The layers of the wildfire agent's networks as sizes, for predicting their memory without torch."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from legroom.extend import Net, Recomputed

if TYPE_CHECKING:
    from legroom.extend import BoxSpace


def fire_net(
    observation: BoxSpace, residual: bool = True, multi_scale: bool = True, attention: bool = True, **_: Any
) -> Net:
    """Return the layers of `FireNet`: same-size convolutions (inputs, outputs, kernel), and what autograd keeps.

    `kept` counts feature maps: the inputs of convolutions and of group normalisations, and the outputs of activations.
    """
    channels, height, width = observation.shape
    cells = height * width
    if not (residual or multi_scale or attention):
        layers = [(channels, 32, 3), (32, 64, 3), (64, 64, 3), (64, 1, 1)]
        kept, norm_layers, wide = channels + 32 + 64 + 64, 0, 64
        again, inside = Recomputed((kept + 1) * cells, wide * cells, 0), kept - channels
    else:
        wide = 128
        layers = [(channels, wide, 3), (wide, wide, 3), (wide, 1, 1)]
        kept, norm_layers = channels + 4 * wide, 1
        if multi_scale:
            layers += [(wide, wide // 2, kernel) for kernel in (3, 5, 7)] + [(3 * wide // 2, wide, 1)]
            kept += 3 * wide // 2 + wide
        if residual:
            layers += [(wide, wide, 3)] * 16
            kept, norm_layers = kept + 8 * 4 * wide, norm_layers + 16
        if attention:
            layers += [(wide, wide // 8, 1), (wide // 8, wide, 1), (wide, 1, 7)]
            kept += 2 * wide
        # Its blocks are cut into segments of layers: the largest is of residual blocks, as many as fit, or the rest.
        children = 6 + bool(multi_scale) + 8 * bool(residual) + bool(attention)
        segments = max(math.isqrt(children), 2)
        part = 4 * wide * min(-(-children // segments), 8) if residual else 4 * wide
        again, inside = Recomputed(part * cells, wide * cells, 0, 0), max(kept - channels - (segments - 1) * wide, 0)
    parameters = sum(i * o * kernel**2 + o for i, o, kernel in layers) + norm_layers * 2 * wide
    return Net(
        parameters,
        kept * cells,
        wide * cells,
        cells,
        convolved=2 * wide * cells,
        largest=max(i * o * kernel**2 for i, o, kernel in layers),
        inside=inside * cells,
        recomputed=(replace(again, parameters=parameters),),
        widest_outside=wide * cells if norm_layers else cells,
        cast=channels * cells,
        handed_out=cells,
        normed=norm_layers > 0,
    )


SIGHTS = 37  # features of a cell, as `sight.sights` computes them


def sight_net(observation: BoxSpace, width: int = 32, **_: object) -> Net:
    """Return the layers of `SightNet`: what each cell sees is kept, and the outputs of two layers that cells share."""
    height, columns = observation.shape[1:]
    cells = height * columns
    layers = [(SIGHTS, width, 1), (width, width, 1), (width, width, 0), (width, 1, 1), (width, 1, 1)]
    return Net(
        sum(inputs * outputs + bias * outputs for inputs, outputs, bias in layers),
        kept=(SIGHTS + 2 * width) * cells,
        widest=width * cells,
        features=cells,
        converted=2 * SIGHTS * cells,  # features one by one, and together
        largest=width * max(SIGHTS, width),
        widest_outside=width * cells,
        cast=SIGHTS * cells,
        handed_out=cells,
    )
