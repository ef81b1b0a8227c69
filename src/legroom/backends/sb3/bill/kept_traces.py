"""Traces of runs on the CPU, kept from one command to the next: a child that imports torch takes a second or more.

A trace is kept only where the run's networks are made of the libraries' own classes, so that what is installed and what
the run says tell all about them. A user's class may change without its name.
"""

from functools import cache
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

import legroom
from legroom.backends.sb3.base_figures import LIBRARIES
from legroom.backends.sb3.stored import has_own_classes, network_key
from legroom.machine.cache import cache_folder, digest, read_json, write_json
from legroom.machine.versions import read_versions
from legroom.model.evidence import NetTrace, Values
from legroom.model.run import Run

TRACED_BY = ("hollow", "backends/sb3")


def kept_trace(run: Run, values: Values) -> NetTrace | None:
    """Return what a trace of this run on the CPU told before; None where nothing is kept."""
    if (path := _path(run, values)) is None or (content := read_json(path)) is None:
        return None
    try:
        found: NetTrace = _adapter().validate_python(content)
    except ValidationError:
        return None
    return found


def keep_trace(run: Run, values: Values, net: NetTrace) -> None:
    """Keep what a trace on the CPU told, where the run's networks are known by what it says."""
    if (path := _path(run, values)) is not None:
        write_json(path, _adapter().dump_python(net, mode="json"))


def _path(run: Run, values: Values) -> Path | None:
    if has_own_classes(run):
        return None
    versions = sorted(read_versions((*LIBRARIES, "sb3-contrib")).items())
    return cache_folder() / f"trace-{digest(network_key(run), values, versions, _code())}.json"


@cache
def _code() -> list[tuple[str, int, int]]:
    """Return what tells whether the code that traces is still the same."""
    root = Path(legroom.__file__).parent
    files = sorted(path for folder in TRACED_BY for path in (root / folder).rglob("*.py"))
    return [(path.name, (about := path.stat()).st_size, about.st_mtime_ns) for path in files]


@cache
def _adapter() -> TypeAdapter[Any]:
    return TypeAdapter(NetTrace)
