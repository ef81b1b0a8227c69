"""Packages that not every installation has: an import that lacks one fails with one line that names the extra.

    with needs("sb3", what="following the networks"):
        from legroom.backends.sb3.trace import trace_run

Imports inside functions are typed and can be seen by the check of their direction; this is all that they need besides.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from legroom.errors import MissingExtra

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

_OURS = ("legroom", "legroom_workloads")


@contextmanager
def needs(extra: str, *, what: str) -> Iterator[None]:
    """Turn the failure to import a third-party package into the advice to install `extra`.

    A module of ours or of the standard library that cannot be found is a defect, and passes as it is.

    Raises:
        MissingExtra: a package is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as missing:
        package = (missing.name or "").partition(".")[0]
        if not package or package in _OURS or package in sys.stdlib_module_names:
            raise
        raise MissingExtra(extra, missing.name or package, what=what) from missing


def require(extra: str, packages: Iterable[str], *, what: str) -> None:
    """Refuse to go on where a package is not installed, without importing it.

    Raises:
        MissingExtra: the first that is missing.
    """
    for package in packages:
        if find_spec(package) is None:
            raise MissingExtra(extra, package, what=what)


def entry_points(group: str) -> EntryPoints:
    """Return what installed distributions register under `group`."""
    from importlib.metadata import entry_points as registered  # only here: it takes a tenth of the time of a --help

    return registered(group=group)


def lazy_exports(package: str, modules: Mapping[str, str], *, extra: str = "all") -> Callable[[str], Any]:
    """Return a module `__getattr__` (PEP 562) that imports on first use, so that naming a package imports no torch.

    Args:
        modules: in which module each name is.
        extra: what these need.
    """

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        with needs(extra, what=f"{package}'s {name}"):
            return getattr(import_module(modules[name]), name)

    return get
