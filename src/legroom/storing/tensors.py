"""Decoded batches as tensors: without a copy on the CPU, through page-locked memory to a GPU."""

import numpy as np
import torch as th

from legroom.storing.outputs import Decoded, Outputs


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
    return tensor if device.type == "cpu" else tensor.to(device)


def _pinned(n_bytes: int) -> np.ndarray:
    return th.empty(n_bytes, dtype=th.uint8, pin_memory=True).numpy()
