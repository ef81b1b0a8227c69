"""Before and after: a profile against one that was saved, and what changed by more than noise.

Every figure has an interval from within its own run. Two that meet say nothing; only where they do not is the figure
called better or worse. That misses small changes on a noisy machine, and that is the point: whoever is told that
something changed should be able to rely on it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args

from legroom import __version__
from legroom.errors import BadInput
from legroom.model.files import open_plain
from legroom.model.trace import Comparison, FigureChange, LeakVerdict, Profile

JSON_VERSION = 1
LARGEST_FILE = 64 << 20  # bytes
NOTHING_PER_STEP = 1.0  # bytes; a difference below is none, however exact both are
What = Literal["level", "bytes_per_step", "marginal"]
Pair = tuple[float, float]


def read_baseline(path: Path) -> dict[str, Any]:
    """Return what `legroom profile --save` (or `--json`) wrote.

    Raises:
        BadInput: there is no such file, or it is no profile.
    """
    try:
        with open_plain(path) as file:
            content = file.read(LARGEST_FILE + 1)
        if len(content) > LARGEST_FILE:
            raise BadInput("is too large to be a profile", path=path)
        found = json.loads(content)
    except OSError as missing:
        raise BadInput(missing.strerror or str(missing), path=path, hint="legroom profile ENV --save FILE") from None
    except (ValueError, RecursionError):
        raise BadInput("is not JSON", path=path, hint="legroom profile ENV --save FILE") from None
    saved: dict[str, Any] = found if isinstance(found, dict) else {}
    leak = saved.get("leak")
    if not isinstance(leak, dict) or leak.get("verdict") not in get_args(LeakVerdict):
        raise BadInput("is not a profile", path=path, hint="legroom profile ENV --save FILE")
    if saved.get("legroom") != JSON_VERSION:
        version = saved.get("legroom")
        raise BadInput(f"is a profile of version {version!r}, not {JSON_VERSION}", path=path, hint="save it again")
    return saved


def compare(profile: Profile, saved: Mapping[str, Any], name: str) -> Comparison:
    """Return what changed since `saved` (of `read_baseline`).

    Args:
        name: of the baseline, for the report.
    """
    leak, scaling = saved["leak"], saved.get("scaling") or {}
    now, scaled = profile.leak, profile.scaling
    grows = "leak" in (leak["verdict"], now.verdict)
    level = _change("level", _pairs(saved, "level", "level_interval"), (profile.level, profile.level_interval))
    if grows:
        level = FigureChange("level", level.before, level.now, None, None, "unknown", "no steady level: it leaks")
    slope = _pairs(leak, "bytes_per_step", "interval")
    changes = (
        level,
        _change("bytes_per_step", slope, (now.bytes_per_step, now.interval), least=NOTHING_PER_STEP),
        _change("marginal", _pairs(scaling, "marginal", "interval"), (scaled.marginal, scaled.interval)),
    )
    return Comparison(name, changes, leak["verdict"], tuple(_notes(profile, saved)))


def _notes(profile: Profile, saved: Mapping[str, Any]) -> list[str]:
    notes = []
    if saved.get("env") != profile.env:
        notes.append(f"the baseline is of another environment, {saved.get('env')}")
    version = (saved.get("versions") or {}).get("legroom") if isinstance(saved.get("versions"), dict) else None
    if version != __version__:
        notes.append(f"the baseline was saved by legroom {version or 'of unknown version'}, this is {__version__}")
    return notes


def _change(
    what: What, before: tuple[float | None, Pair | None], now: tuple[float | None, Pair | None], least: float = 0.0
) -> FigureChange:
    (was, was_in), (value, value_in) = before, now
    if was is None or value is None or was_in is None or value_in is None:
        missing = "was not measured then" if was is None else "was not measured now" if value is None else ""
        return FigureChange(
            what, was, value, was_in, value_in, "unknown", missing or "the run was too short to measure noise"
        )
    apart = max(was_in[0], value_in[0]) > min(was_in[1], value_in[1])
    if not apart or abs(value - was) < least:
        return FigureChange(what, was, value, was_in, value_in, "same")
    return FigureChange(what, was, value, was_in, value_in, "worse" if value > was else "better")


def _pairs(data: Any, value: str, interval: str) -> tuple[float | None, Pair | None]:
    """Return a figure and its interval from somebody's file, None for whatever is not there or is no number."""
    if not isinstance(data, Mapping):
        return None, None
    number, pair = data.get(value), data.get(interval)
    is_pair = isinstance(pair, list) and len(pair) == 2 and all(_is_number(end) for end in pair)
    return (number if _is_number(number) else None), ((pair[0], pair[1]) if is_pair and pair else None)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
