"""Versions of the installed libraries, without importing them.

`importlib.metadata` opens and parses a METADATA file per package; the name and version are already in the name of the
`*.dist-info` directory, so one directory listing per entry of `sys.path` is enough (1 ms instead of 30).
"""

import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path

from legroom.backends.base import backends

# What a report should name beside the libraries of the backends.
LIBRARIES = ("pyboy", "scipy", "rasterio", "psutil", "nvidia-ml-py")

_DIST = re.compile(r"(?P<name>.+?)-(?P<version>[0-9][^-]*)(?:-.*)?\.(?:dist|egg)-info")
_TORCH_BUILD = re.compile(r"^(cuda|hip)\b[^=]*=\s*'([0-9.]+)", re.MULTILINE)


def all_libraries() -> tuple[str, ...]:
    """Return what a prediction depends on, or what a report should name."""
    return tuple(dict.fromkeys(("legroom", "numpy", *(name for b in backends() for name in b.libraries), *LIBRARIES)))


def read_versions(libraries: Iterable[str] | None = None, path: Iterable[str] | None = None) -> dict[str, str]:
    """Return `{"python": ..., library: version}` of what is installed, in the order asked for.

    torch carries its build (`2.13.0+cpu`, `2.14.1+cu130`), even where its package name does not: the CUDA build costs
    each process twice the memory of the other.
    """
    libraries = all_libraries() if libraries is None else tuple(libraries)
    found = _find_dists(libraries, sys.path if path is None else path)
    versions = {"python": ".".join(str(n) for n in sys.version_info[:3])}
    for library in libraries:
        if library in found:
            version, folder = found[library]
            versions[library] = _torch_version(version, folder) if library == "torch" else version
    return versions


def is_installed(library: str, path: Iterable[str] | None = None) -> bool:
    """Return whether a distribution called `library` is on the path."""
    return bool(_find_dists((library,), sys.path if path is None else path))


def _find_dists(libraries: Iterable[str], path: Iterable[str]) -> dict[str, tuple[str, Path]]:
    wanted = {_normal(library): library for library in libraries}
    found: dict[str, tuple[str, Path]] = {}
    for entry in path:
        try:
            names = os.listdir(entry or ".")  # noqa: PTH208 (a listing of strings: no Path object per package)
        except OSError:
            continue  # zip archives and paths that do not exist
        for name in names:
            if name.endswith("-info") and (match := _DIST.fullmatch(name)):
                library = wanted.get(_normal(match["name"]))
                if library is not None and library not in found:  # as in an import, the first on the path wins
                    found[library] = (match["version"], Path(entry or "."))
    return found


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _torch_version(version: str, folder: Path) -> str:
    if "+" in version:
        return version
    try:
        text = (folder / "torch/version.py").read_text(encoding="utf-8")
    except OSError:
        return version
    builds = dict(_TORCH_BUILD.findall(text))
    if "cuda" in builds:
        return f"{version}+cu{builds['cuda'].replace('.', '')}"
    return f"{version}+rocm{builds['hip']}" if "hip" in builds else f"{version}+cpu"
