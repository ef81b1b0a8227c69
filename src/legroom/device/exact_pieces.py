"""When computing a gradient in pieces is exact: the size of the pieces, and the networks for which it is not.

The gradient of a mean over a minibatch is the sum of its pieces' gradients, as long as a sample's output does not
depend on which other samples pass through the network with it. Batch normalisation breaks that, and so does everything
that draws random numbers or keeps a memory in a forward pass. The usual layers are refused by name when a model is
built; whatever else does it shows in the first piece of an update, before anything is learned from it.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from legroom.errors import BadInput

# samples per forward and backward pass, or from which update on how many: [[from_update, size], ...]
MicroBatch = int | Sequence[Sequence[int]]

_DROPPING = (nn.RNNBase, nn.MultiheadAttention)  # which take dropout as an argument
_WAY_OUT = "leave micro_batch out, or use LayerNorm, GroupNorm or no dropout"


def check_sizes(micro_batch: MicroBatch | None) -> None:
    """Raise where `micro_batch` is no size and no schedule of sizes.

    Raises:
        BadInput: in one line.
    """
    if micro_batch is None:
        return
    steps = [(0, micro_batch)] if isinstance(micro_batch, int) else micro_batch
    pairs = isinstance(steps, Sequence) and all(isinstance(s, Sequence) and len(s) == 2 for s in steps)
    numbers = [n for step in steps for n in step] if pairs and not isinstance(steps, str) else []
    if not numbers or any(isinstance(n, bool) or not isinstance(n, int) for n in numbers):
        raise BadInput(f"micro_batch is {micro_batch!r}", hint="a number of samples, or [[from_update, size], ...]")
    begins = numbers[::2]
    if min(numbers[1::2]) < 1 or min(begins) < 0 or begins != sorted(set(begins)):
        raise BadInput(
            f"micro_batch is {micro_batch!r}", hint="sizes of at least 1, and updates in increasing order, from 0 on"
        )


def size_at(micro_batch: MicroBatch | None, update: int) -> int | None:
    """Return the samples per pass in this update (counted from 0), None for whole minibatches."""
    if micro_batch is None or isinstance(micro_batch, int):
        return micro_batch
    return next((int(size) for begin, size in reversed(micro_batch) if begin <= update), None)


def shrunk_from(micro_batch: MicroBatch | None, update: int, size: int, whole: int) -> list[list[int]]:
    """Return the schedule that is `micro_batch` until this update, and never more than `size` from it on.

    Args:
        whole: the samples in a minibatch, for a run that had no micro-batch.
    """
    steps = [[0, whole if micro_batch is None else micro_batch]] if isinstance(micro_batch, int | None) else micro_batch
    before = [[int(begin), int(each)] for begin, each in steps if begin < update]
    after = [[int(begin), int(each)] for begin, each in steps if begin > update and each < size]
    return [*before, [update, size], *after]


def splits(micro_batch: MicroBatch | None, batch_size: int) -> bool:
    """Return whether any update passes a minibatch of `batch_size` in more than one piece."""
    sizes = [micro_batch] if isinstance(micro_batch, int) else [int(size) for _, size in micro_batch or ()]
    return any(size < batch_size for size in sizes)


def refuse_inexact(policy: nn.Module, micro_batch: MicroBatch | None) -> None:
    """Raise where a layer of the policy makes a sample's output depend on the others in its pass.

    Raises:
        BadInput: names the layer.
    """
    for name, module in policy.named_modules():
        if not module.training:
            continue  # a module that stays in evaluation mode neither normalises over the batch nor drops anything
        kind = type(module).__name__
        if isinstance(module, _BatchNorm) or "BatchRenorm" in kind:  # the latter is sb3-contrib's, for CrossQ
            doing = "normalises over the samples of a forward pass"
        elif (isinstance(module, _DropoutNd) and module.p > 0) or (
            isinstance(module, _DROPPING) and module.dropout > 0
        ):
            doing = "draws other random numbers when a minibatch comes in pieces"
        else:
            continue
        raise BadInput(f"micro_batch {micro_batch} is not exact with {kind} ({name}), which {doing}", hint=_WAY_OUT)


@contextmanager
def watched(policy: nn.Module, device: torch.device) -> Iterator[None]:
    """Watch a forward pass, and raise where it drew random numbers or changed what the network keeps.

    Raises:
        BadInput: after the block.
    """
    versions = {name: (buffer, buffer._version) for name, buffer in policy.named_buffers()}
    drawn = _random_state(device)
    yield
    changed = next((name for name, (buffer, version) in versions.items() if buffer._version != version), None)
    if changed is not None:
        raise BadInput(f"micro_batch is not exact: a forward pass changes the policy's buffer {changed}", hint=_WAY_OUT)
    if not torch.equal(drawn, _random_state(device)):
        raise BadInput("micro_batch is not exact: a forward pass of the policy draws random numbers", hint=_WAY_OUT)


def _random_state(device: torch.device) -> torch.Tensor:
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()
