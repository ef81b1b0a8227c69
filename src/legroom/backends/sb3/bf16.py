"""Forward passes in bfloat16: what the networks keep for the backward pass takes half the memory.

Parameters, gradients, optimizer and loss stay in float32. Each network of a policy (extractor, towers, heads, critics)
runs under `torch.autocast` and hands out float32, so that distributions and losses never see eight bits of mantissa;
what crosses from one network to the next is small. It changes what is learned: a prediction has three digits.

Casted weights are not cached: a network uses each weight once per pass, and where a pass comes in pieces the pieces'
gradients are then added up in float32.

`torch.autocast` does not know the meta device, on which runs are traced. Where that stands for a card,
`hollow.card_autocast` casts; where it stands for a CPU, `autocast_as_on` does. Its lists follow
aten/src/ATen/autocast_mode.h of torch 2.13 as far as networks use them; a test holds them against the installed torch.
What nn.MultiheadAttention does inside is not seen from there: it is traced in float32, and so overestimated.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Literal

import torch
from stable_baselines3.common.policies import BaseModel
from torch import nn
from torch.overrides import TorchFunctionMode

# Methods by which the library enters a network; `MlpExtractor` has three.
_ENTRANCES = ("forward", "forward_actor", "forward_critic")

_IN_BF16 = {
    "linear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "conv_tbc",
    "matmul", "__matmul__", "mm", "bmm", "addmm", "baddbmm", "addbmm", "scaled_dot_product_attention",
}  # fmt: skip
_IN_FLOAT32 = {"prod", "avg_pool3d", "adaptive_avg_pool3d", "quantile", "cdist"}


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
            with autocast(_device_type(self, args)):
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


@contextmanager
def autocast(device_type: str) -> Iterator[None]:
    """Run the block under bfloat16 autocast; on the meta device as on the device that `autocast_as_on` names."""
    if device_type == "meta" and _meant[-1] == "cpu":
        with _Casting():
            yield
        return
    on = "cuda" if device_type == "meta" else device_type  # what autocast does there is `hollow.card_autocast`
    with torch.autocast(on, dtype=torch.bfloat16, cache_enabled=False):
        yield


_meant: list[Literal["cpu", "cuda"]] = ["cpu"]  # the device that meta tensors stand for


@contextmanager
def autocast_as_on(device: Literal["cpu", "cuda"]) -> Iterator[None]:
    """Let networks that run in bf16 cast on the meta device what autocast would cast on this one.

    In a backward pass the only functions called from Python are those of a forward pass that is computed again
    (activation checkpointing). They are under autocast, too, as torch.utils.checkpoint sees to on a real device.
    """
    if device == "cuda":
        _meant.append(device)
        try:
            yield
        finally:
            _meant.pop()
        return
    autograd: Any = torch.autograd  # which keeps to itself the function by which backward() enters C++
    original = autograd._engine_run_backward

    def backward(*args: Any, **kwargs: Any) -> Any:
        with _Casting():
            return original(*args, **kwargs)

    _meant.append(device)
    autograd._engine_run_backward = backward
    try:
        yield
    finally:
        autograd._engine_run_backward = original
        _meant.pop()


class _Casting(TorchFunctionMode):
    """Casts the arguments of functions as autocast does on a CPU; above autograd, which follows the casts."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name in _IN_BF16:
            args, kwargs = _cast(args, torch.bfloat16), _cast(kwargs, torch.bfloat16)
        elif name in _IN_FLOAT32:
            args, kwargs = _cast(args, torch.float32), _cast(kwargs, torch.float32)
        return func(*args, **kwargs)


def _cast(value: Any, dtype: torch.dtype) -> Any:
    if isinstance(value, torch.Tensor):
        narrow = value.dtype in (torch.float32, torch.bfloat16, torch.float16) and value.device.type == "meta"
        return value.to(dtype) if narrow else value
    if isinstance(value, dict):
        return {key: _cast(each, dtype) for key, each in value.items()}
    if isinstance(value, list | tuple):
        # the last one first: so the compiler of torch's wheels evaluates the arguments of a C++ call
        return type(value)([_cast(each, dtype) for each in reversed(value)][::-1])
    return value
