"""Sizes as error messages print them.

Every library read here counts in powers of 1024, also those that print `GB`: PyTorch's MPS allocator divides by
1,073,741,824 and writes GB; Ray's memory monitor divides by 1024**3 and writes GB (a pod limited to 2 Gi is reported
as `2.00GB`); the kernel's kB are 1024 bytes.
"""

from __future__ import annotations

import re
from math import prod

NUMBER = r"(?:\d{1,3}(?:,\d{3})+|\d{1,20})(?:\.\d{0,9})?"
UNIT = r"(?:bytes?|[KkMGTPE]i?B|[KMGTPE]i?(?![A-Za-z])|[kmg]b|B(?![A-Za-z]))"
SIZE = rf"({NUMBER}\s?{UNIT})"  # one group: `12.50 MiB`, `960. GiB`, `33554432B`, `3,200,512 bytes`, `8.54G`
_PARTS = re.compile(rf"({NUMBER})\s?({UNIT})")
_POWERS = {letter: power for power, letter in enumerate("kmgtpe", 1)}
NONSENSE = 1 << 62  # "17179869184.00 GiB memory in use": what Windows drivers report for processes they do not show

_ITEM_BYTES = {
    "bool": 1, "uint8": 1, "int8": 1, "byte": 1, "ubyte": 1, "uint16": 2, "int16": 2, "float16": 2, "half": 2,
    "bfloat16": 2, "uint32": 4, "int32": 4, "float32": 4, "float": 4, "int": 4, "uint64": 8, "int64": 8, "float64": 8,
    "double": 8, "object": 8, "complex64": 8, "complex128": 16, "longdouble": 16, "float128": 16, "complex256": 32,
}  # fmt: skip


def to_bytes(text: str) -> int | None:
    """Return the bytes of one printed size, None where it is no size or a nonsensical one."""
    match = _PARTS.fullmatch(text.strip())
    if match is None:
        return None
    power = _POWERS.get(match[2][0].lower(), 0) if not match[2].lower().startswith("b") else 0
    nbytes = round(float(match[1].replace(",", "")) * 1024**power)
    return nbytes if nbytes < NONSENSE else None


def first_size(pattern: str | re.Pattern[str], text: str) -> int | None:
    match = re.search(pattern, text)
    return to_bytes(match[1]) if match else None


def parse_shape(text: str) -> tuple[int, ...] | None:
    """Return `(2048, 4, 17)`, `(1000000,)` or `[8,3,64]` as a tuple; None where it is no shape."""
    numbers = re.findall(r"\d+", text)
    return tuple(int(n) for n in numbers) if re.fullmatch(r"[\[(]?[\d,\s]*[\])]?", text.strip()) and numbers else None


def item_bytes(dtype: str | None) -> int | None:
    """Return the bytes of one element, None for a type that is not known."""
    if dtype is None:
        return None
    name = dtype.strip("<>=|'\"` ").removeprefix("torch.").removeprefix("np.").removeprefix("numpy.")
    if name in _ITEM_BYTES:
        return _ITEM_BYTES[name]
    if match := re.fullmatch(r"U(\d+)", name):
        return 4 * int(match[1])
    if match := re.fullmatch(r"[SV](\d+)|[fiub](\d+)|c(\d+)", name):
        return int(next(group for group in match.groups() if group))
    return 8 if name.startswith(("datetime64", "timedelta64")) else None


def array_bytes(shape: tuple[int, ...] | None, dtype: str | None) -> int | None:
    each = item_bytes(dtype)
    return None if shape is None or each is None else prod(shape) * each
