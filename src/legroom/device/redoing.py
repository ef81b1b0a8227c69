"""Do a piece of work again, in smaller pieces, when memory runs out in it: the retreat inside an update.

What makes it safe is the order of things. An exception keeps every frame it passed through alive, and with them the
activations that did not fit: so nothing is freed, and nothing tried, before it is gone. Only then are gradients
dropped, cycles collected and the allocator's cache given back, only then do the random generators return to where they
were, and only then is the same work begun again. Nothing on that way asks the device for a value.

The first attempt after a failure is of the same size: memory may have been short for a moment, because of another
process or because free memory was in pieces, and such a redo ends with the very same bits. If that fails too, the size
is halved, and stays halved; so it is, at once, where a redo has just helped the work before this one.
"""

from __future__ import annotations

import ctypes
import gc
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch

from legroom.errors import BadInput
from legroom.machine.tree import give_back

Result = TypeVar("Result")
LONGEST_REASON = 200  # characters: CUDA's messages go on with advice and statistics


def has_cuda_context() -> bool:
    """Return whether this process has used a GPU; asking does not make it use one."""
    initialized: Callable[[], bool] = torch.cuda.is_initialized  # which has no annotations
    return torch.cuda.is_available() and initialized()


@dataclass(frozen=True)
class Retreat:
    """One time that memory ran out inside an update, and how the same minibatch was done again."""

    update: int  # which minibatch, counted from 0
    why: str  # what the allocator said, in one line
    size_before: int  # samples per pass when it failed, and when it was done again
    size: int

    @property
    def what(self) -> str:
        """What was done, in a few words."""
        if self.size == self.size_before:
            return f"the same micro-batch of {self.size}, after emptying the cache"
        return f"micro-batches of {self.size} instead of {self.size_before}"


@dataclass(frozen=True)
class Moment:
    """The random generators at one moment, and how often the buffers of a network had been written to."""

    torch_cpu: torch.Tensor
    torch_gpu: torch.Tensor | None
    numpy: Any
    python: Any
    buffers: tuple[tuple[torch.Tensor, int], ...]

    @classmethod
    def now(cls, device: torch.device, buffers: Iterable[torch.Tensor] = ()) -> Moment:
        """Return this moment; no value is fetched from the device for it."""
        return cls(
            torch.get_rng_state(),
            torch.cuda.get_rng_state(device) if device.type == "cuda" else None,
            _numpy_state(),
            random.getstate(),
            tuple((buffer, buffer._version) for buffer in buffers),
        )

    def can_return(self) -> bool:
        """Return whether generators are all that has changed: a network that counts or averages has moved on."""
        return all(buffer._version == version for buffer, version in self.buffers)

    def restore(self, device: torch.device) -> None:
        """Let every generator go on from here."""
        torch.set_rng_state(self.torch_cpu)
        if self.torch_gpu is not None:
            torch.cuda.set_rng_state(self.torch_gpu, device)
        _restore_numpy(self.numpy)
        random.setstate(self.python)


def _numpy_words() -> Any:
    """Return the memory that NumPy's global Mersenne twister has its state in; None where it is another generator.

    An update notes it before every minibatch, and `np.random.get_state` takes 80 microseconds (2026-11, NumPy 2.4). A
    normal number that NumPy's old interface keeps for the next call is not in it.
    """
    generator = np.random.mtrand.get_bit_generator()
    if not isinstance(generator, np.random.MT19937):
        return None
    return (ctypes.c_char * (4 * 624 + 4)).from_address(generator.ctypes.state_address)


def _numpy_state() -> Any:
    words = _numpy_words()
    return np.random.get_state() if words is None else words.raw


def _restore_numpy(state: Any) -> None:
    if isinstance(state, bytes):
        _numpy_words().raw = state
    else:
        np.random.set_state(state)


class Redoing:
    """Attempts work until it fits.

    Args:
        tell: hears of every retreat before the work is begun again.
        let_go: drops what an attempt that failed has left behind, as gradients.
        may_split: raises BadInput where this work must not be done in smaller pieces.
    """

    def __init__(
        self, tell: Callable[[Retreat], None], let_go: Callable[[], None], may_split: Callable[[], None]
    ) -> None:
        self._tell, self._let_go, self._may_split = tell, let_go, may_split
        self._cured_at: int | None = None  # the last update that fitted when it was simply done again

    def run(self, attempt: Callable[[int], Result], size: int, update: int, moment: Moment, device: Any) -> Result:
        """Return `attempt(size)`, or what it gives when it is made again.

        Args:
            attempt: does the work in pieces of so many samples; must change nothing that `let_go` and the generators
                do not take back, except when it succeeds.
            moment: to which the generators return before it is made again.

        Raises:
            What the last attempt raised: some other error, or memory ran out with single samples too.
        """
        may_repeat = self._cured_at is None or update - self._cured_at > 1
        last: tuple[type[Exception], str] | None = None
        while True:
            try:
                result = attempt(size)
                if last is not None:
                    free_cached(device)  # for the optimizer's step, which cannot be redone
                return result
            except BadInput as refused:
                if last is None:
                    raise
                kind, why = last  # only pieces are refused: memory is still the reason for the end
                raise kind(f"{why}; it cannot be computed in pieces: {refused}") from None
            except Exception as error:
                if not is_out_of_memory(error) or not moment.can_return():
                    raise
                smaller = size if may_repeat else self._smaller(size) or (size if last is None else None)
                if smaller is None:
                    raise
                kind = torch.OutOfMemoryError if isinstance(error, torch.OutOfMemoryError) else MemoryError
                last = kind, first_line(error)
            # The exception is gone here, and what its frames kept alive.
            retreat = Retreat(update, last[1], size, smaller)
            self._cured_at = update if smaller == size else None
            may_repeat, size = False, smaller
            self._let_go()
            free_cached(device)
            moment.restore(device)
            self._tell(retreat)

    def _smaller(self, size: int) -> int | None:
        """Return half the size, None where there is no smaller one."""
        try:
            self._may_split()
        except BadInput:
            return None
        return size // 2 or None


def free_cached(device: torch.device) -> None:
    """Free what nobody needs any more, and have the allocators return what they hold: what comes has other sizes."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
    give_back()


def first_line(error: BaseException) -> str:
    """Return what an exception says, in one line that is not too long."""
    text = str(error).strip().partition("\n")[0] or "memory ran out"
    if len(text) > LONGEST_REASON:
        kept, _, _ = text[:LONGEST_REASON].rpartition(". ")
        text = f"{kept}." if kept else text[: LONGEST_REASON - 1] + "…"
    return f"{type(error).__name__}: {text}"


# torch's CPU allocator raises a bare RuntimeError; so do old CUDA builds and libraries on top of CUDA.
WORDS = (
    "DefaultCPUAllocator", "out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED",
    "could not create a memory object", "could not create a primitive", "could not execute a primitive",  # oneDNN
    "not enough memory",
)  # fmt: skip


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether the exception is a failed allocation, on the host or on the GPU."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(word in str(error) for word in WORDS)
