"""A workload: environments and run files that belong together, as a package declares them to legroom; and layers.

A package registers a `Workload` in the entry point group `legroom.workloads`. The module that holds it is imported by
nearly every command, so it imports nothing heavy: functions that need more import it when they are called. What a
features extractor publishes of itself is a function that returns its layers, a `Net`, as sizes.

A convolution or linear layer keeps its input, a ReLU or Tanh its output, so every layer's activated output is kept
once; an image is kept as the float32 it is converted to. Two knobs need more than that sum. With activation
checkpointing a container of layers keeps its input and output only, and computes the rest again, a part at a time: a
`Recomputed`. In bfloat16 every network casts its input, works in two bytes per number and hands out float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from legroom.errors import BadInput

if TYPE_CHECKING:
    from legroom.model.run import Run
    from legroom.model.spaces import BoxSpace, KnownSpaces

# With activation checkpointing: in how many pieces samples go through a container, which has how many layers or more.
PIECES, FEWEST_LAYERS = 8, 3


@dataclass(frozen=True)
class Recomputed:
    """What one container computes again in the backward pass, in scalars per sample."""

    kept: int  # kept inside while its turn lasts; `widest` the widest output there
    widest: int
    parameters: int  # of the container, whose gradients are added up over the pieces
    # how many at a time; None: an eighth of the minibatch; 0: all of them, but a part of the layers
    samples: int | None = None

    def at_once(self, batch: int) -> int:
        """Return how many samples are computed again at a time."""
        return batch if self.samples == 0 else min(self.samples or -(-batch // PIECES), batch)


@dataclass(frozen=True)
class Net:
    """Part of a network, in scalars (per sample where it is not parameters)."""

    parameters: int = 0
    kept: int = 0  # kept for backward
    widest: int = 0  # the widest output that has a gradient
    features: int = 0  # the output
    converted: int = 0  # observations that are converted to float32 before anything else happens
    convolved: int = 0  # in- and output of the largest convolution; operators take their scratch one after the other
    largest: int = 0  # the largest single parameter
    # how much of `kept` activation checkpointing does not keep; `recomputed` what it computes anew instead
    inside: int = 0
    recomputed: tuple[Recomputed, ...] = ()
    widest_outside: int = 0  # the widest output that is left then
    cast: int = 0  # inputs that are cast to bfloat16 first; `handed_out`: outputs that are cast back
    handed_out: int = 0
    normed: bool = False  # whether normalisation layers, which cards compute in float32, are all over it

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
            self.recomputed + other.recomputed,
            max(self.widest_outside, other.widest_outside),
            self.cast + other.cast,
            self.handed_out + other.handed_out,
            self.normed or other.normed,
        )


def linear(width: int, out: int) -> Net:
    """Return a linear layer, a network of its own."""
    return Net(width * out + out, out, out, out, largest=width * out, widest_outside=out, cast=width, handed_out=out)


def mlp(width: int, layers: Sequence[int], head: int | None = None) -> Net:
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
    part = Recomputed(net.kept, net.widest, net.parameters)
    return replace(net, inside=inside, recomputed=(part,), widest_outside=net.features)


def convolutions(
    shape: tuple[int, ...],
    layers: Sequence[tuple[int, int, int, int]],
    features: int,
    *,
    convert: bool,
    pool: int | None = None,
    samples: int | None = None,
) -> Net:
    """Return convolutions over all axes but the first, each with a ReLU, then pool, flatten, linear and ReLU.

    Args:
        shape: of an observation, channels first.
        layers: output channels, kernel, stride and padding of each convolution.
        convert: whether observations are converted to float32 first.
        pool: cells along each axis that an average pooling leaves; None: there is none.
        samples: how many are computed again at a time with activation checkpointing (`Recomputed`).
    """
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
        (Recomputed(maps, widest, parameters, samples),),
        max(elements, features),
        cast,
        features,
    )


@dataclass(frozen=True)
class Extractor:
    """What a features extractor publishes of itself, so that it need not be imported."""

    # returns its layers, given an observation's space and the extractor's arguments by name; None where only its sizes
    # are known
    layers: Callable[..., Net] | None = None
    # the arguments that make it smaller, largest first: what `fit` may choose from
    sizes: tuple[Mapping[str, Any], ...] = ()

    def net(self, observation: BoxSpace, arguments: Mapping[str, Any]) -> Net:
        """Return its layers.

        Raises:
            BadInput: its function does not take these arguments.
        """
        assert self.layers is not None
        try:
            return self.layers(observation, **arguments)
        except (TypeError, ValueError, KeyError) as error:
            name = getattr(self.layers, "__qualname__", repr(self.layers))
            raise BadInput(f"features_extractor_kwargs: {name} says {error}", hint="check policy") from error


@dataclass(frozen=True)
class WorkloadOption:
    """An option of the command line for the runs of a workload, such as `--rom FILE`; `help` is half a sentence."""

    name: str
    metavar: str
    help: str


@dataclass(frozen=True)
class Workload:
    """Named runs, and what legroom has to know of their environments and networks without importing them."""

    name: str  # the same as that of the entry point; `name:run` names a run
    # what the modules of its environments start with. Runs of such an environment belong to the workload, whichever
    # file they stand in.
    package: str
    runs: Path  # the folder of its run files, `<run>.yaml` each
    default: str  # the run that the bare name means where a command takes one run
    order: tuple[str, ...] = ()  # of the runs in tables; others follow by name
    # runs that are not the same training in another size, which `train NAME --fit` does not choose from
    apart: tuple[str, ...] = ()
    first_shown: str | None = None  # the run that the page opens with if none is named there
    extra: str = ""  # of the distribution that brings `packages`; empty where they are named themselves
    packages: tuple[str, ...] = ()  # that its environments, networks and scores import when they are used
    options: tuple[WorkloadOption, ...] = ()  # of the command line, beside those that every run has
    # returns a run as it is with options, given as texts by their name. It may read the files that they name, and
    # removes declared spaces that no longer hold.
    with_options: Callable[[Run, Mapping[str, str]], Run] | None = None
    # returns the spaces of its environment by the arguments that it is made with; None where only the environment can
    # tell. Where arguments are changed, declared spaces no longer count, and it is asked.
    spaces: Callable[[Mapping[str, Any]], KnownSpaces | None] | None = None
    # what features extractors publish, by the name that run files give them (`module:Class`)
    extractors: Mapping[str, Extractor] = field(default_factory=dict)
    # policies of Q networks without a head of their own, whose extractor's features are the values
    headless: tuple[str, ...] = ()
    rank: int = 100  # where it stands among workloads in tables; those of the same rank are sorted by name
    # whether the package's own tests read all its run files, which then are read without being checked
    checked: bool = False

    def run_files(self) -> dict[str, Path]:
        """Return its run files by the name of the run, in their order."""
        files = {path.stem: path for path in sorted(self.runs.glob("*.yaml"))}
        named = [run for run in self.order if run in files]
        return {run: files[run] for run in (*named, *(run for run in files if run not in named))}
