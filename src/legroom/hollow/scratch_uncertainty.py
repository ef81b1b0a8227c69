"""Operators whose memory on a card is not known for certain, and by how much it may differ.

An operator is known if its requests were compared with those of a CUDA build (`known_operators.txt`, written by
`python -m tests.hollow.operator_kinds known`). Another one may take scratch as large as all that goes in and comes out.
Convolutions in bfloat16 are cuDNN's or PyTorch's own, which unroll windows and copy operands, by card, release and
setting (TORCH_CUDNN_V8_API_DISABLED).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from . import conv_scratch, layer_scratch, recurrent_scratch, sort_scratch  # noqa: F401  add to the table of op_scratch
from .op_scratch import MATMULS, PROGRAMS, SHAPES

_aten = torch.ops.aten
_OWN = {"aten", "prims", "prim", "profiler"}
KNOWN = frozenset((Path(__file__).parent / "known_operators.txt").read_text().split())

BFLOAT16 = "convolutions in bfloat16"
Doubt = Any  # what it is called, and a function of (args, kwargs, out) that gives the bytes


def doubt_of(func: Any) -> Doubt:
    """Return what is uncertain about an operator, None where nothing is."""
    if func in (_aten.convolution.default, _aten.convolution_backward.default):
        return BFLOAT16, _other_kernel
    if func.namespace in _OWN and (_was_compared(func) or _takes_nothing(func)):
        return None
    return f"{func.namespace}.{func.overloadpacket.__name__}", _all_bytes


def _was_compared(func: Any) -> bool:
    """Return whether an operator, its like that is not in place, or its like for single tensors was compared."""
    name = func.overloadpacket.__name__
    base = name.removeprefix("_foreach_").rstrip("_")
    return name in KNOWN or base in KNOWN or func in PROGRAMS or func in SHAPES


def _takes_nothing(func: Any) -> bool:
    """Return whether an operator gives views, works element by element, or fills what it is given."""
    arguments, name = func._schema.arguments, func.overloadpacket.__name__
    writes = any(each.alias_info is not None and each.alias_info.is_write for each in arguments)
    if not writes and any(each.alias_info is not None for each in func._schema.returns):
        return True
    if torch.Tag.pointwise in func.tags or name in _FILLING:
        return True
    base = getattr(_aten, name.removeprefix("_foreach_").rstrip("_"), None) if name.startswith("_foreach_") else None
    return (base is not None and any(torch.Tag.pointwise in getattr(base, one).tags for one in base.overloads())) or (
        writes and torch.Tag.nondeterministic_seeded in func.tags
    )


_FILLING = {
    "_amp_update_scale_", "_foreach_copy_", "unsafe_split", "fill_", "zero_", "_foreach_zero_", "resize_",
    "detach_", "empty_strided", "new_full", "new_ones", "full_like",
}  # fmt: skip


def _other_kernel(args: Any, kwargs: Any, out: Any) -> int:
    """Return what another kernel may take: the windows of one sample, and copies of the operands."""
    backward = isinstance(out, tuple)
    x, weight = args[1:3] if backward else args[:2]
    if torch.bfloat16 not in (x.dtype, weight.dtype):
        return 0
    space = args[0].shape[2:] if backward else out.shape[2:]
    windows = weight[0].numel() * space.numel() * x.element_size()
    return int(windows + _nbytes(weight) + _nbytes(args[0] if backward else x))


def _all_bytes(args: Any, kwargs: Any, out: Any) -> int:
    return _nbytes((args, tuple(kwargs.values()), out))


def _nbytes(value: Any) -> int:
    if isinstance(value, torch.Tensor):
        return value.numel() * value.element_size()
    return sum(map(_nbytes, value)) if isinstance(value, (list, tuple)) else 0


__all__ = ["MATMULS", "PROGRAMS", "SHAPES"]
