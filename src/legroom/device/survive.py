"""A guard for somebody's own PyTorch loop: a loss whose gradient is computed in pieces when it does not fit at once.

    @legroom.survive(micro_batch=256)
    def loss_of(batch):
        return functional.mse_loss(net(batch["x"]), batch["y"])

    for batch in batches:
        optimizer.zero_grad()
        loss = loss_of(batch)          # has called backward(): gradients are in the parameters
        optimizer.step()
    print(loss_of.retreats, loss_of.micro_batch)

What the function has to do:

- take the batch as its first argument: a tensor, an array, or a dict, list, tuple or named tuple of them (nested as
  deep as you like), whose first axis is the samples. Everything else in it, and every further argument, is handed on as
  it is. Samples that come from elsewhere would not be cut;
- return a scalar tensor, the *mean* loss over the samples it was given. What is a mean over the whole batch in another
  way (normalised advantages, importance weights that sum to one) is computed before and comes in the batch;
- not call `backward()` or `step()`, and change nothing when it is called: it may be called several times;
- keep samples apart: batch normalisation in training mode sees other means in pieces. Dropout works, with other masks
  in pieces than at once.

What it gets for that: gradients are added to the parameters as one `loss.backward()` of the whole batch would add them,
but for the rounding of sums (and to the bit as long as everything fits at once). Where an allocation fails, gradients
and random generators go back to where they were when the function was called, memory is freed, and the batch is
computed again, first as it was, then in pieces half as large, which stay that small. With single samples failing too,
the library's own exception comes through. Each retreat is a warning of the logger `legroom`.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch

from legroom.device.exact_pieces import check_sizes
from legroom.device.redoing import Moment, Redoing, Retreat, has_cuda_context
from legroom.errors import BadInput

logger = logging.getLogger("legroom")
Loss = Callable[..., torch.Tensor]


def survive(micro_batch: int | None = None) -> Callable[[Loss], SurvivingLoss]:
    """Return a decorator for a function that returns the mean loss of a batch; see the module for what it must keep to.

    Args:
        micro_batch: samples per pass to begin with; None: the whole batch.

    Raises:
        BadInput: `micro_batch` is not a size.

    Example:
        >>> import legroom, torch
        >>> net = torch.nn.Linear(3, 1)
        >>> @legroom.survive(micro_batch=2)
        ... def loss_of(batch):
        ...     return net(batch).square().mean()
        >>> loss = loss_of(torch.ones(8, 3))  # gradients are in the parameters
        >>> net.weight.grad.shape, loss_of.micro_batch
        (torch.Size([1, 3]), 2)
    """
    if micro_batch is not None and not isinstance(micro_batch, int):
        raise BadInput(f"survive takes a number of samples, not {micro_batch!r}",
                       hint="write @legroom.survive() above the function")  # fmt: skip
    check_sizes(micro_batch)
    return lambda function: SurvivingLoss(function, micro_batch)


class SurvivingLoss:
    """The decorated function: computes a loss with its gradients, in as many pieces as it takes.

    `micro_batch` is the samples per pass by now, None for whole batches; `retreats` is what happened; `calls` counts.
    """

    def __init__(self, function: Loss, micro_batch: int | None) -> None:
        functools.update_wrapper(self, function)
        self.micro_batch, self.retreats, self.calls = micro_batch, list[Retreat](), 0
        self._function = function
        self._before: dict[torch.Tensor, torch.Tensor | None] = {}  # gradients as they were when it was called
        self._redoing = Redoing(self._retreated, self._take_back, lambda: None)

    def __call__(self, batch: Any, *others: Any, **more: Any) -> torch.Tensor:
        """Add the gradient of the batch's mean loss to the parameters, and return that loss, detached.

        Raises:
            BadInput: the batch has no samples, or its parts have different numbers of them; the function returned
                no scalar that depends on a parameter.
        """
        tensors = list(_leaves(batch))
        lengths = {len(each) for each in tensors}
        if len(lengths) != 1 or 0 in lengths:
            raise BadInput(f"a batch of {sorted(lengths)} samples cannot be cut", hint="the first axis is the samples")
        (whole,) = lengths
        device = next((each.device for each in tensors if isinstance(each, torch.Tensor)), torch.device("cpu"))
        if device.type == "cpu" and has_cuda_context():
            device = torch.device("cuda", torch.cuda.current_device())  # the function may well move the batch there

        def attempt(size: int) -> torch.Tensor:
            total: torch.Tensor | None = None
            for start in range(0, whole, size):
                part = batch if size == whole else _cut(batch, slice(start, start + size))
                share = min(size, whole - start) / whole
                loss = self._function(part, *others, **more)
                self._put_gradients_aside(loss)
                torch.autograd.backward(loss * share)
                total = loss.detach() * share if total is None else total + loss.detach() * share
                del part, loss  # the next part is made only when this one's memory is free
            assert total is not None, "a batch has samples"
            return total

        size = min(self.micro_batch or whole, whole)
        moment = Moment.now(device)
        self._before.clear()
        try:
            total = self._redoing.run(attempt, size, self.calls, moment, device)
        except BaseException:
            self._take_back()
            raise
        self._add_what_was_there()
        self.calls += 1
        return total

    def _put_gradients_aside(self, loss: Any) -> None:
        """Let backward begin without gradients where it has not been: what was there is added when all went well."""
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1 or loss.grad_fn is None:
            name = getattr(self._function, "__name__", "the function")
            raise BadInput(f"{name} has to return a scalar loss that depends on a parameter")
        for leaf in _leaves_of_graph(loss.grad_fn):
            if leaf not in self._before:
                self._before[leaf], leaf.grad = leaf.grad, None

    def _take_back(self) -> None:
        for leaf, gradient in self._before.items():
            leaf.grad = gradient
        self._before.clear()

    def _add_what_was_there(self) -> None:
        for leaf, gradient in self._before.items():
            if gradient is not None:
                leaf.grad = gradient if leaf.grad is None else gradient.add_(leaf.grad)
        self._before.clear()

    def _retreated(self, retreat: Retreat) -> None:
        if retreat.size != retreat.size_before:
            self.micro_batch = retreat.size
        self.retreats.append(retreat)
        logger.warning("batch %d: %s; redone with %s", retreat.update, retreat.why, retreat.what)


def _leaves_of_graph(root: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors in which backward from here will add up gradients."""
    seen, waiting = {root}, [root]
    while waiting:
        node = waiting.pop()
        if type(node).__name__ == "AccumulateGrad":
            yield node.variable
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                waiting.append(following)


def _is_samples(value: Any) -> bool:
    return isinstance(value, torch.Tensor | np.ndarray) and value.ndim > 0


def _leaves(batch: Any) -> Iterator[Any]:
    if _is_samples(batch):
        yield batch
    elif isinstance(batch, Mapping):
        for each in batch.values():
            yield from _leaves(each)
    elif isinstance(batch, list | tuple):
        for each in batch:
            yield from _leaves(each)


def _cut(batch: Any, which: slice) -> Any:
    if _is_samples(batch):
        return batch[which]
    if isinstance(batch, Mapping):
        return {key: _cut(each, which) for key, each in batch.items()}
    if isinstance(batch, list | tuple):
        parts = [_cut(each, which) for each in batch]
        if isinstance(batch, tuple) and hasattr(batch, "_fields"):
            return type(batch)(*parts)
        return type(batch)(parts)
    return batch
