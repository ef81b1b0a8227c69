"""The whole table of operator -> scratch: what each file of programs adds to it."""

from __future__ import annotations

from . import attention_scratch, conv_scratch, norm_scratch, recurrent_scratch, sort_scratch  # noqa: F401
from .op_scratch import MATMULS, PROGRAMS, SHAPES

__all__ = ["MATMULS", "PROGRAMS", "SHAPES"]
