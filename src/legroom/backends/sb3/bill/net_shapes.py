"""Layers and extractors as sizes: parameters, what autograd keeps per sample, what the memory knobs change of it.

A convolution or linear layer keeps its input, a ReLU or Tanh its output, so every layer's activated output is kept
once; an image is kept as the float32 it is converted to. Two knobs need more than that sum. With activation
checkpointing a container of layers keeps its input and output only (`activation_checkpointing`), and computes the
rest again, a part at a time: an `Again`. In bfloat16 (`backends.sb3.bf16`) every network casts its input, works in two
bytes per number and hands out float32.

Mirrors common/torch_layers.py of stable-baselines3 2.9.2 and the extractors of the shipped workloads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from legroom.model.spaces import BoxSpace, Space

NATURE_CNN = ((32, 8, 4, 0), (64, 4, 2, 0), (64, 3, 1, 0))  # out channels, kernel, stride, padding

# The mine's extractor: size -> (convolutions, pool, features). Each convolution is followed by a ReLU, then
# AdaptiveAvgPool3d(pool), Flatten, Linear(features), ReLU.
_CNN3D = {
    "full": (((32, 3, 1, 1), (64, 3, 2, 1), (128, 3, 2, 1)), 4, 512),
    "small": (((16, 3, 1, 1), (32, 3, 2, 1), (64, 3, 2, 1)), 4, 256),
    "tiny": (((8, 5, 2, 2), (16, 5, 2, 2)), 1, 64),
}

# `sb3_checkpointing`: in how many pieces samples go through a container, and from how many layers on it is one.
PIECES, FEWEST_LAYERS = 8, 3
CNN3D_SAMPLES = 4  # that the mine's extractor computes again at a time


@dataclass(frozen=True)
class Again:
    """What one container computes again in the backward pass, in scalars per sample.

    Args:
        kept: kept inside while its turn lasts; `widest` the widest output there.
        parameters: of the container, whose gradients are added up over the pieces.
        samples: how many at a time; None: an eighth of the minibatch; 0: all of them, but a part of the layers.
    """

    kept: int
    widest: int
    parameters: int
    samples: int | None = None

    def at_once(self, batch: int) -> int:
        """Return how many samples are computed again at a time."""
        return batch if self.samples == 0 else min(self.samples or -(-batch // PIECES), batch)


@dataclass(frozen=True)
class Net:
    """Part of a network, in scalars (per sample where it is not parameters).

    Args:
        kept: kept for backward.
        widest: the widest output that has a gradient.
        features: the output.
        converted: observations that are converted to float32 before anything else happens.
        convolved: in- and output of the largest convolution; operators take their scratch one after the other.
        largest: the largest single parameter.
        inside: how much of `kept` activation checkpointing does not keep; `again` what it computes anew instead.
        widest_outside: the widest output that is left then.
        cast: inputs that are cast to bfloat16 first; `handed_out`: outputs that are cast back.
        normed: whether normalisation layers, which cards compute in float32, are all over it.
    """

    parameters: int = 0
    kept: int = 0
    widest: int = 0
    features: int = 0
    converted: int = 0
    convolved: int = 0
    largest: int = 0
    inside: int = 0
    again: tuple[Again, ...] = ()
    widest_outside: int = 0
    cast: int = 0
    handed_out: int = 0
    normed: bool = False

    def then(self, other: Net) -> Net:
        """Return this part followed by, or beside, another whose features are the result."""
        return Net(
            self.parameters + other.parameters,
            self.kept + other.kept,
            max(self.widest, other.widest),
            other.features,
            max(self.converted, other.converted),
            max(self.convolved, other.convolved),
            max(self.largest, other.largest),
            self.inside + other.inside,
            self.again + other.again,
            max(self.widest_outside, other.widest_outside),
            self.cast + other.cast,
            self.handed_out + other.handed_out,
            self.normed or other.normed,
        )


def linear(width: int, out: int) -> Net:
    """Return a linear layer, a network of its own."""
    return Net(width * out + out, out, out, out, largest=width * out, widest_outside=out, cast=width, handed_out=out)


def mlp(width: int, layers: Any, head: int | None = None) -> Net:
    """Return linear layers with an activation each, and where `head` is given a last one without: one container."""
    net = Net(features=width)
    for out in (*layers, *(() if head is None else (head,))):
        net = net.then(linear(net.features, int(out)))
    if not net.parameters:
        return net
    net = replace(net, cast=width, handed_out=net.features)
    return contained(net) if 2 * len(layers) + (head is not None) >= FEWEST_LAYERS else net


def contained(net: Net) -> Net:
    """Return the same network as one container that activation checkpointing turns into its input and output."""
    inside = net.kept - net.features
    again = Again(net.kept, net.widest, net.parameters)
    return replace(net, inside=inside, again=(again,), widest_outside=net.features)


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
    return convolutions(shape, NATURE_CNN, None, features, True)


def convolutions(
    shape: tuple[int, ...],
    layers: tuple[tuple[int, int, int, int], ...],
    pool: int | None,
    features: int,
    convert: bool,
) -> Net:
    """Return convolutions over all axes but the first, each with a ReLU, then pool, flatten, linear and ReLU."""
    channels, *size = shape
    parameters, elements = 0, math.prod(shape)
    converted, cast = (elements, 0) if convert else (0, elements)
    kept, widest, convolved, largest = converted, 0, 0, 0
    for out, kernel, stride, padding in layers:
        size = [max((n + 2 * padding - kernel) // stride + 1, 1) for n in size]
        largest = max(largest, channels * out * kernel ** len(size))
        parameters += channels * out * kernel ** len(size) + out
        before, channels, elements = elements, out, out * math.prod(size)
        kept, widest, convolved = kept + elements, max(widest, elements), max(convolved, before + elements)
    maps, inside = kept - converted, kept - converted - elements
    if pool is not None:
        elements, inside = channels * pool ** len(size), maps
        kept += elements
    head = linear(elements, features)
    return Net(
        parameters + head.parameters,
        kept + features,
        widest,
        features,
        converted,
        convolved,
        max(largest, head.largest),
        inside,
        (Again(maps, widest, parameters, None if pool is None else CNN3D_SAMPLES),),
        max(elements, features),
        cast,
        features,
    )


def cnn3d(observation: BoxSpace, kwargs: Mapping[str, Any]) -> Net:
    """Return `Cnn3d` of the mine workload."""
    layers, pool, features = _CNN3D.get(str(kwargs.get("size", "full")), _CNN3D["full"])
    return convolutions(observation.shape, layers, pool, features, observation.dtype != "float32")


def fire_net(observation: BoxSpace, kwargs: Mapping[str, Any]) -> Net:
    """`FireNet` of the fire workload: same-size convolutions (inputs, outputs, kernel), and what autograd keeps.

    `kept` counts feature maps: the inputs of convolutions and of group normalisations, and the outputs of activations.
    """
    channels, height, width = observation.shape
    residual, scales, attention = (bool(kwargs.get(key, True)) for key in ("residual", "multi_scale", "attention"))
    cells = height * width
    if not (residual or scales or attention):
        layers = [(channels, 32, 3), (32, 64, 3), (64, 64, 3), (64, 1, 1)]
        kept, norm_layers, wide = channels + 32 + 64 + 64, 0, 64
        again, inside = Again((kept + 1) * cells, wide * cells, 0), kept - channels
    else:
        wide = 128
        layers = [(channels, wide, 3), (wide, wide, 3), (wide, 1, 1)]
        kept, norm_layers = channels + 4 * wide, 1
        if scales:
            layers += [(wide, wide // 2, kernel) for kernel in (3, 5, 7)] + [(3 * wide // 2, wide, 1)]
            kept += 3 * wide // 2 + wide
        if residual:
            layers += [(wide, wide, 3)] * 16
            kept, norm_layers = kept + 8 * 4 * wide, norm_layers + 16
        if attention:
            layers += [(wide, wide // 8, 1), (wide // 8, wide, 1), (wide, 1, 7)]
            kept += 2 * wide
        # Its blocks are cut into segments of layers: the largest is of residual blocks, as many as fit, or the rest.
        children = 6 + scales + 8 * residual + attention
        segments = max(math.isqrt(children), 2)
        part = 4 * wide * min(-(-children // segments), 8) if residual else 4 * wide
        again, inside = Again(part * cells, wide * cells, 0, 0), max(kept - channels - (segments - 1) * wide, 0)
    parameters = sum(i * o * kernel**2 + o for i, o, kernel in layers) + norm_layers * 2 * wide
    return Net(
        parameters,
        kept * cells,
        wide * cells,
        cells,
        convolved=2 * wide * cells,
        largest=max(i * o * kernel**2 for i, o, kernel in layers),
        inside=inside * cells,
        again=(replace(again, parameters=parameters),),
        widest_outside=wide * cells if norm_layers else cells,
        cast=channels * cells,
        handed_out=cells,
        normed=norm_layers > 0,
    )


# Extractors of the shipped workloads, by the name a run file gives them.
KNOWN_EXTRACTORS: Mapping[str, Callable[[BoxSpace, Mapping[str, Any]], Net]] = {
    "legroom_workloads.mine:Cnn3d": cnn3d,
    "legroom_workloads.fire:FireNet": fire_net,
}


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
