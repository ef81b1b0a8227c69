"""Sizes in bytes, to and from text: the one place that formats or parses them.

GiB (1024³) and GB (1000³) differ by 7 %, which is more than the error of a good prediction, so they are never
mixed: everything legroom prints is binary (GiB, MiB), and everything it reads may be either.
"""

import math
import re

from legroom.errors import BadInput

MIB = 1 << 20
GIB = 1 << 30
LARGEST = (1 << 63) - 1  # what a size_t / int64 array dimension can still hold

_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_FACTORS = {"": 1, "b": 1, "k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4, "p": 1024**5}
_FACTORS |= {f"{p}ib": 1024**i for i, p in enumerate("kmgtp", 1)}
_FACTORS |= {f"{p}b": 1000**i for i, p in enumerate("kmgtp", 1)}
_SIZE = re.compile(r"\s*([0-9]+(?:[._][0-9]+)*\.?|\.[0-9]+)\s*([A-Za-z]*)\s*")


def format_size(nbytes: float) -> str:
    """Return `nbytes` as a short binary size: `209.4 GiB`, `12.0 MiB`, `512 B`."""
    value, unit = float(nbytes), _BINARY[0]
    for unit in _BINARY:
        if abs(value) < 1023.95 or unit == _BINARY[-1]:
            break
        value /= 1024
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"


def format_fine_size(nbytes: float) -> str:
    """Return a size with two decimals of GiB where they tell sizes of one machine apart: `4.22 GiB`."""
    return f"{nbytes / GIB:.2f} GiB" if GIB <= nbytes < 100 * GIB else format_size(nbytes)


def typed_size(nbytes: int) -> str:
    """Return a size that can be typed and is not above the one given: `7.5GiB`, `800MiB`, or `3.68GiB` as it was."""
    if (as_given := f"{nbytes / GIB:.2f}GiB") and parse_size(as_given) == nbytes >= GIB:
        return f"{nbytes / GIB:.2f}".rstrip("0").rstrip(".") + "GiB"
    return f"{nbytes * 10 // GIB / 10:g}GiB" if nbytes >= GIB else f"{max(nbytes // MIB, 1)}MiB"


def parse_size(text: str | int, *, what: str = "size") -> int:
    """Return the bytes that `text` names: `16GiB`, `16G`, `8 GB`, `1.5TiB`, `1048576`.

    A bare suffix (`G`) is binary, as in the options of docker, Slurm and systemd. A number alone is bytes; below 1 MiB
    the unit was forgotten.

    Raises:
        BadInput: it is not a size, has no unit, is not positive, or over 2**63 bytes.
    """
    match = _SIZE.fullmatch(str(text))
    factor = _FACTORS.get(match[2].lower()) if match else None
    if match is None or factor is None:
        raise BadInput(f"{what}: {text!r} is not a size", hint="write it as 16GiB, 16GB or in bytes")
    nbytes = int(float(match[1].replace("_", "")) * factor)
    if not 0 < nbytes <= LARGEST:
        raise BadInput(f"{what}: {text!r} must be positive and below 2**63 bytes", hint="write it as 16GiB")
    if isinstance(text, str) and not match[2] and nbytes < MIB:
        raise BadInput(f"{what}: {text!r} has no unit", hint=f"write {text.strip()}GiB, or {text.strip()}MiB")
    return nbytes


def plural(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def duration_text(seconds: float) -> str:
    """A duration in its two largest units: `42 s`, `7 min`, `1 h 20 min`, `3 d 4 h`."""
    if not math.isfinite(seconds):
        return "–"
    if seconds < 59.5:
        return f"{max(seconds, 0):.0f} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    if minutes < 24 * 60:
        hours, minutes = divmod(minutes, 60)
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(round(seconds / 3600), 24)
    return f"{days} d {hours} h" if hours else f"{days} d"


def number_text(value: float | None) -> str:
    """A figure in a few digits: `1.23`, `-0.0012`, `12,346`, `1.20e+08`; `–` where there is none."""
    if value is None or not math.isfinite(value):
        return "–"
    size = abs(value)
    if 0 < size < 1e-4 or size >= 1e8:
        return f"{value:.2e}"
    if size >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if size >= 100 else f"{value:.2f}" if size >= 0.1 or value == 0 else f"{value:.2g}"
