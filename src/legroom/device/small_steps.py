"""Gradients clipped and Adam's steps made in fewer calls, bit for bit the same, where calls take the time.

Adam goes through its parameters one by one on a processor, a dozen calls for each, and every call takes longer than its
arithmetic where a network is small. Here a call does it for all of them, which PyTorch's `foreach` does as well, but
with as much time again for looking at its arguments, and with numbers for which every tensor's call makes a tensor. It
takes memory for a moment, so it is done for small networks only; a step takes less than a third of Adam's time, and
clipping half (2026-11, torch 2.13; `bench.train_start`).

Nothing is kept between steps but whether the results are the same, which is tried on copies before the first one.

Mirrors `_single_tensor_adam` (torch/optim/adam.py) and `clip_grad_norm_` (torch/nn/utils/clip_grad.py) of torch 2.13.
"""

from collections.abc import Iterable
from typing import Any, cast
from weakref import WeakKeyDictionary

import torch as th
from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks

SMALL_BYTES = 1 << 20  # of all parameters
KNOWN = (th.optim.Adam, th.optim.AdamW)
TRIED_STEPS = 5
TRIED_NORM = 0.5
_OTHER_WAYS = ("amsgrad", "maximize", "capturable", "differentiable", "fused")  # of Adam, which are left to it

_in_few_calls: "WeakKeyDictionary[th.optim.Optimizer, bool]" = WeakKeyDictionary()


def clip_gradients(optimizer: th.optim.Optimizer, parameters: Iterable[th.nn.Parameter], max_norm: float) -> None:
    """Do what `clip_grad_norm_(parameters, max_norm)` does, before a step of `optimizer`."""
    parameters = list(parameters)
    gradients = [one.grad for one in parameters if one.grad is not None]
    if not gradients or not _takes_few_calls(optimizer) or not all(_is_plain(one) for one in gradients):
        th.nn.utils.clip_grad_norm_(parameters, max_norm)
    else:
        _clip(gradients, max_norm)


def make_step(optimizer: th.optim.Optimizer) -> None:
    """Do what `optimizer.step()` does."""
    if not _takes_few_calls(optimizer) or _is_watched(optimizer) or not _step(optimizer):
        optimizer.step()


def _takes_few_calls(optimizer: th.optim.Optimizer) -> bool:
    few = _in_few_calls.get(optimizer)
    if few is None:
        few = _in_few_calls[optimizer] = _is_small(optimizer) and _gives_the_same(optimizer)
    return few


def _is_small(optimizer: th.optim.Optimizer) -> bool:
    if type(optimizer) not in KNOWN or len(optimizer.param_groups) != 1:
        return False
    parameters = optimizer.param_groups[0]["params"]
    plain = all(type(one) is th.nn.Parameter and one.is_contiguous() and _is_plain(one.data) for one in parameters)
    return plain and sum(one.nbytes for one in parameters) <= SMALL_BYTES


def _is_plain(tensor: th.Tensor) -> bool:
    return tensor.dtype is th.float32 and tensor.is_cpu and type(tensor) is th.Tensor and not tensor.is_sparse


def _is_watched(optimizer: th.optim.Optimizer) -> bool:
    """Say whether hooks are called at every step, such as those of a learning-rate schedule."""
    own = optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks or "step" in vars(optimizer)
    return bool(own or _global_optimizer_pre_hooks or _global_optimizer_post_hooks)


@th.no_grad()
def _clip(gradients: list[th.Tensor], max_norm: float) -> None:
    norm = th.linalg.vector_norm(th.stack(th._foreach_norm(gradients, 2.0)), 2.0)
    th._foreach_mul_(gradients, th.clamp(max_norm / (norm + 1e-6), max=1.0))


@th.no_grad()
def _step(optimizer: th.optim.Optimizer) -> bool:
    """Make a step, unless it is the first one, or not as plain as most are: False, and nothing was done."""
    (group, *others) = optimizer.param_groups
    lr, (beta1, beta2), decay = group["lr"], group["betas"], group["weight_decay"]
    parameters = [one for one in group["params"] if one.grad is not None]
    states: list[Any] = [optimizer.state.get(one) for one in parameters]
    gradients = [one.grad for one in parameters]
    plain = all(states) and all(_is_plain(one) for one in gradients)
    numbers = all(isinstance(each, float) for each in (lr, beta1, beta2))  # and no tensors
    if others or not plain or not numbers or group["foreach"] is not None or any(group[each] for each in _OTHER_WAYS):
        return False
    counts = [state["step"] for state in states]
    done = {count.item() for count in counts}
    if len(done) != 1:  # a parameter had no gradient in some step, or none has one
        return False
    count = done.pop() + 1
    averages, squares = [state["exp_avg"] for state in states], [state["exp_avg_sq"] for state in states]
    th._foreach_add_(counts, th.ones(()), alpha=1.0)
    if decay and group.get("decoupled_weight_decay", isinstance(optimizer, th.optim.AdamW)):
        th._foreach_mul_(parameters, 1 - lr * decay)
    elif decay:
        gradients = list(th._foreach_add(gradients, parameters, alpha=decay))
    th._foreach_lerp_(averages, gradients, 1 - beta1)
    th._foreach_mul_(squares, th.tensor(beta2))
    th._foreach_addcmul_(squares, gradients, gradients, 1 - beta2)
    divisors = th._foreach_sqrt(squares)
    th._foreach_div_(divisors, th.tensor((1 - beta2**count) ** 0.5))
    th._foreach_add_(divisors, th.tensor(group["eps"]), alpha=1.0)
    th._foreach_addcdiv_(parameters, averages, divisors, -(lr / (1 - beta1**count)))
    return True


def _gives_the_same(optimizer: th.optim.Optimizer) -> bool:
    """Say whether copies of the parameters come out alike to the last bit both ways, for this PyTorch and processor."""
    try:
        results = [_tried(optimizer, ours=ours) for ours in (False, True)]
    except (AttributeError, TypeError, RuntimeError):  # an earlier PyTorch lacks some of the calls
        return False
    return all(th.equal(one, other) for one, other in zip(*results, strict=True))


def _tried(optimizer: th.optim.Optimizer, *, ours: bool) -> list[th.Tensor]:
    """Return what copies of the parameters, and the optimizer's state of them, are after a few steps."""
    group, kind = optimizer.param_groups[0], cast(Any, type(optimizer))
    copies = [th.nn.Parameter(one.detach().clone()) for one in group["params"]]
    tried = kind([{**group, "params": copies}])
    for step in range(TRIED_STEPS):
        gradients = []
        for one in copies:
            wave = th.sin(th.arange(one.numel(), dtype=one.dtype) * (step + 1.5))
            one.grad = wave.reshape(one.shape) / 10**step
            gradients.append(one.grad)
        if ours:
            _clip(gradients, TRIED_NORM)
        else:
            th.nn.utils.clip_grad_norm_(copies, TRIED_NORM)
        if not ours or not _step(tried):
            tried.step()
    return [*copies, *(state[name] for state in tried.state.values() for name in sorted(state))]
