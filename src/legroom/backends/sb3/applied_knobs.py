"""Turn the memory knobs of a run on its algorithm: activation checkpointing, bf16.

    turn_knobs(PPO("CnnPolicy", env), run.memory)

They are turned right after the library has built networks and optimizers, so that no argument of the library changes
on the way: giving SB3 optimizer arguments, for instance, would silently replace its own (PPO's Adam has eps 1e-5). The
trained model, the one that is traced and the small one that is measured are all turned here.

Activation checkpointing. Autograd keeps every layer's activations until the backward pass. A checkpointed container
keeps its input only, and computes the rest a second time when its turn in the backward pass comes. All of it at once
would be as much memory as before, so the work is cut in one of two ways:

- by samples, where every layer treats them one by one (convolutions, linear layers, activations, pooling …): the
  minibatch goes through the whole container in `PIECES` pieces. Cutting between layers would gain little here: the
  first convolution's output is most of what such a network keeps, and its own backward pass needs all of it.
- by layers, where a container holds modules that are not known to do so (residual blocks, attention): about √n
  segments of n layers. The numbers are then the same to the bit.

By samples, gradients are the same sum in another order. Batch normalisation and dropout would not be the same at all:
a container with one of them is left alone. What changes is the class of the container; parameters, their names and
their order stay, so a checkpoint of one fits the other.

bfloat16. Parameters, gradients, optimizer and loss stay in float32. Each network of a policy (extractor, towers, heads,
critics) runs under `torch.autocast` and hands out float32, so that distributions and losses never see eight bits of
mantissa; what crosses from one network to the next is small. It changes what is learned: a prediction has three digits.

Casted weights are not cached: a network uses each weight once per pass, and where a pass comes in pieces the pieces'
gradients are then added up in float32.

`torch.autocast` does not know the meta device, on which runs are traced: there `hollow.card_autocast` casts, as on a
GPU or on a CPU.
"""

import inspect
import math
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import torch
from stable_baselines3.common.policies import BaseModel
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.utils.checkpoint import checkpoint

from legroom.errors import BadInput
from legroom.model.run import MemorySpec


def turn_knobs(model: Any, memory: MemorySpec, source: str | None = None) -> None:
    """Turn the knobs on a finished model.

    Raises:
        BadInput: a knob has nothing to turn in this policy.
    """
    if memory.activation_checkpointing and not checkpoint_activations(model.policy):
        raise BadInput(
            "memory.activation_checkpointing: the policy has no nn.Sequential of three or more layers to compute again",
            path=source,
            hint="remove it; containers with batch normalisation or dropout do not count",
        )
    if memory.bf16:
        run_in_bf16(model)


PIECES = 8  # of a minibatch: what is computed again at a time is an eighth of what was kept
FEWEST_LAYERS = 3  # a container of less keeps little more than its input
OWN_ARGUMENT = "checkpointing"  # of an extractor that knows better how to do it

_BY_SAMPLE = (
    nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d, nn.Linear, nn.Identity,
    nn.LayerNorm, nn.GroupNorm, nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d,
    nn.ReLU, nn.LeakyReLU, nn.ReLU6, nn.ELU, nn.CELU, nn.SELU, nn.GELU, nn.SiLU, nn.Mish, nn.Tanh, nn.Sigmoid,
    nn.Softplus, nn.Softsign, nn.Hardtanh, nn.Hardswish, nn.PReLU,
    nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d, nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d,
    nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d, nn.AdaptiveMaxPool2d, nn.AdaptiveMaxPool3d,
    nn.ZeroPad2d, nn.ReflectionPad2d, nn.ReplicationPad2d, nn.Upsample, nn.PixelShuffle,
)  # fmt: skip


class Checkpointed(nn.Sequential):
    """A container that computes its activations again, in pieces, where it would keep them; else it is as it was."""

    def forward(self, input: Any) -> Any:
        whole: Callable[[torch.Tensor], torch.Tensor] = super().forward
        if not (self.training and torch.is_grad_enabled() and isinstance(input, torch.Tensor) and input.dim() > 1):
            return whole(input)
        if not all(_goes_by_sample(child) for child in self.children()):
            return self._by_layers(input)
        pieces = torch.split(input, max(-(-len(input) // PIECES), 1))
        return torch.cat([_again(whole, piece) for piece in pieces])

    def _by_layers(self, x: torch.Tensor) -> torch.Tensor:
        children = list(self)
        each = math.ceil(len(children) / max(math.isqrt(len(children)), 2))
        for start in range(0, len(children), each):
            x = _again(nn.Sequential(*children[start : start + each]), x)
        return x


def _again(function: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    y: torch.Tensor = checkpoint(function, x, use_reentrant=False, preserve_rng_state=False)
    return y


def checkpoint_activations(policy: nn.Module) -> list[str]:
    """Turn the policy's containers of layers into checkpointed ones and return their names; those inside others stay.

    An extractor with an argument `checkpointing` is left to itself, and named.
    """
    found: list[str] = []
    _visit(policy, "", found)
    return found


def has_own(extractor: Any) -> bool:
    """Return whether a class of features extractors has its own way of checkpointing, an argument to switch it on."""
    return inspect.isclass(extractor) and OWN_ARGUMENT in inspect.signature(extractor.__init__).parameters


def _visit(module: nn.Module, name: str, found: list[str]) -> None:
    for child_name, child in module.named_children():
        path = f"{name}.{child_name}" if name else child_name
        if isinstance(child, Checkpointed) or has_own(type(child)):
            found.append(path)
        elif type(child) is nn.Sequential and _may_be(child):
            child.__class__ = Checkpointed
            found.append(path)
        else:
            _visit(child, path, found)


def _may_be(container: nn.Sequential) -> bool:
    working = [child for child in container if not isinstance(child, nn.Flatten | nn.Identity)]
    return (
        len(working) >= FEWEST_LAYERS
        and any(True for _ in container.parameters())
        and not any(_depends_on_others(module) for module in container.modules())
    )


def _depends_on_others(module: nn.Module) -> bool:
    """Return whether a second forward pass, in pieces, gives something else: random numbers, statistics, a memory."""
    if isinstance(module, nn.RNNBase | nn.MultiheadAttention):
        return module.dropout > 0
    if isinstance(module, _DropoutNd):
        return module.p > 0
    return isinstance(module, _BatchNorm) or "BatchRenorm" in type(module).__name__


def _goes_by_sample(module: nn.Module) -> bool:
    if isinstance(module, nn.Flatten):
        return module.start_dim >= 1
    if type(module) in (nn.Sequential, Checkpointed):
        return all(_goes_by_sample(child) for child in module.children())
    return type(module) in _BY_SAMPLE


# Methods by which the library enters a network; `MlpExtractor` has three.
_ENTRANCES = ("forward", "forward_actor", "forward_critic")


def run_in_bf16(model: Any) -> None:
    """Let all networks of a model's policy run in bfloat16 from now on, target networks included."""
    for network in networks(model.policy):
        kind: Any = type(network)
        network.__class__ = _in_bf16(kind)


def networks(policy: nn.Module) -> Iterator[nn.Module]:
    """Yield the outermost modules of a policy that are networks and not, like actors and critics, made of them."""
    seen: set[int] = set()
    waiting = list(policy.children())
    while waiting:
        module = waiting.pop()
        if id(module) in seen:
            continue
        seen.add(id(module))
        if isinstance(module, BaseModel):
            waiting += module.children()
        else:
            yield module


@cache
def _in_bf16(network: type) -> type:
    """Return the class of networks with its entrances under autocast; its name stays, checkpoints do not know it."""

    def entrance(name: str) -> Any:
        original = getattr(network, name)

        def enter(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
            with torch.autocast(_device_type(self, args), dtype=torch.bfloat16, cache_enabled=False):
                return _float32(original(self, *args, **kwargs))

        return enter

    entrances = {name: entrance(name) for name in _ENTRANCES if hasattr(network, name)}
    return type(network.__name__, (network,), {"__module__": network.__module__, **entrances})


def _device_type(network: nn.Module, args: Any) -> str:
    tensors = (*(a for a in args if isinstance(a, torch.Tensor)), *network.parameters())
    return tensors[0].device.type if tensors else "cpu"


def _float32(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.float() if value.dtype == torch.bfloat16 else value
    if isinstance(value, list | tuple):
        return type(value)(_float32(each) for each in value)
    return value
