"""NumPy's refusals: `Unable to allocate …`, the older wording without a size, `array is too big`, a bare MemoryError.

The message states the size rounded to three digits (`105. GiB`); shape and type give it to the byte, which is checked
against it: where the two disagree, the text is not what it seems and the reading is not certain.
"""

from __future__ import annotations

import re

from legroom.explaining.frames import frames_before
from legroom.explaining.log import Log
from legroom.explaining.reading import Rank, Reading, Recogniser, reading
from legroom.explaining.sizes import SIZE, array_bytes, parse_shape, to_bytes
from legroom.units import format_size

_SHAPED = re.compile(
    rf"Unable to allocate (?:{SIZE} for an )?array with shape (\([\d,\s]*\))(?: and data ?type (\S+))?", re.IGNORECASE
)
_SIZED = re.compile(rf"Unable to allocate (?:internal buffer|{SIZE})")
_ROUNDING = 0.006  # three digits: 1.00 stands for anything up to 1.005
_RAISED = re.compile(
    r"(?:^|[\s`'\"(])(?:[\w.]{1,80}\.)?_?(?:Array)?MemoryError(?:\(\)|:|[`'\"]?\s*$|\s+Traceback \(most recent)"
)
_ARRAY_CODE = re.compile(r"\bnp\.|numpy|\bnd?array|pandas|replay|buffer", re.IGNORECASE)


def _allocate(log: Log, place: int) -> Reading | None:
    message = log.message(place, length=500)
    shaped = _SHAPED.match(message)
    if shaped is None:
        sized = _SIZED.match(message)
        if sized is None or sized[1] is None:
            return None
        size = to_bytes(sized[1])
        return reading(place, Rank.REFUSED, "host-array", _summary(size), requested=size)
    shape, dtype = parse_shape(shaped[2]), (shaped[3] or "").rstrip(".,;:)\"'`") or None
    exact, stated = array_bytes(shape, dtype), to_bytes(shaped[1]) if shaped[1] else None
    agree = exact is None or stated is None or abs(exact - stated) <= _ROUNDING * exact + 1
    notes = () if agree or exact is None else (f"shape and type come to {format_size(exact)}, not what was asked",)
    size = stated if stated is not None else exact
    return reading(
        place, Rank.REFUSED, "host-array", _summary(size),
        requested=size, shape=shape, dtype=dtype, certain=agree, notes=notes,
    )  # fmt: skip


def _too_big(log: Log, place: int) -> Reading | None:
    if not re.search(r"Error|itemsize|maximum", log.line(place)):
        return None
    return reading(
        place, Rank.REFUSED, "host-array",
        "An array was requested that is larger than any computer can address; nothing was allocated.",
        notes=("the product of its dimensions is past 2**63 bytes: one of them is probably wrong",),
    )  # fmt: skip


def _memory_error(log: Log, place: int) -> Reading | None:
    line = log.line(place)
    if not _RAISED.search(line) or "CUDA" in line or "nable to allocate" in log.message(place, length=400):
        return None
    frames = frames_before(log, place)
    seen = bool(frames) and bool(_ARRAY_CODE.search(frames[-1].signature))
    what = (
        "Python asked the system for memory, for an array by the look of the line, and was refused."
        if seen
        else "Python asked the system for memory and was refused: most likely for an array; the text does not say."
    )
    return reading(place, Rank.SAID, "host-array", f"{what} The text does not say how much.", certain=False)


def _summary(size: int | None) -> str:
    return (
        f"Host memory (RAM and swap) ran out: the system refused one array of {format_size(size)}."
        if size
        else "Host memory (RAM and swap) ran out: the system refused one array."
    )


RECOGNISERS = (
    Recogniser("numpy array", ("unable to allocate",), _allocate),
    Recogniser("numpy array too big", ("array is too big", "maximum allowed size exceeded"), _too_big),
    Recogniser("bare MemoryError", ("memoryerror",), _memory_error),
)
