"""Decoded batches as tensors: without a copy on the CPU, through page-locked memory to a GPU.

A GPU fetches a batch from page-locked memory while Python goes on. What it fetches is referred to from here until it is
there, so that `Outputs` does not hand the same memory out again.
"""

import threading
from collections import deque
from typing import Any

import numpy as np
import torch as th

from legroom.storing.outputs import Decoded, Outputs, PageLocked

_lock = threading.Lock()
_on_the_way: deque[tuple[Any, np.ndarray]] = deque()  # events, and what a GPU fetches before them


def outputs_for(device: th.device, keep: int = 2) -> Outputs:
    """Return reused memory for batches that go to this device."""
    return Outputs(keep, _pinned if device.type == "cuda" and th.cuda.is_available() else None)


def as_tensor(array: np.ndarray, device: th.device, copy: bool = True) -> th.Tensor:
    """Do what SB3's `to_torch` does, but do not copy an array that was decoded for this tensor alone."""
    if not isinstance(array, Decoded):
        return th.tensor(array, device=device) if copy else th.as_tensor(array, device=device)
    plain = array.view(np.ndarray)
    if not plain.flags.c_contiguous or plain.ndim == 0:
        return th.tensor(plain, device=device)
    tensor = th.from_numpy(plain)
    if device.type == "cpu":
        return tensor
    is_fetched = device.type == "cuda" and isinstance(array, PageLocked)
    return _fetched(tensor, plain, device) if is_fetched else tensor.to(device)


def _fetched(tensor: th.Tensor, plain: np.ndarray, device: th.device) -> th.Tensor:
    """Return the tensor on a GPU, which fetches it while Python goes on."""
    on_device = tensor.to(device, non_blocking=True)
    fetched = th.cuda.Event()
    fetched.record(th.cuda.current_stream(on_device.device))
    with _lock:
        while _on_the_way and _on_the_way[0][0].query():
            _on_the_way.popleft()
        _on_the_way.append((fetched, plain))
    return on_device


def _pinned(n_bytes: int) -> np.ndarray:
    return th.empty(n_bytes, dtype=th.uint8, pin_memory=True).numpy()
