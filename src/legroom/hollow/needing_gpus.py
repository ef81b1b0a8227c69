"""What no rehearsal can run: CUDA code of the program's own, and simulators that compute on a real GPU."""

from __future__ import annotations

import functools
from typing import Any

from .sites import where

SIMULATORS = ("isaacgym", "isaacsim", "isaaclab", "omni")


def on_extensions(journal: Any, module: Any) -> None:
    """Refuse to compile CUDA sources, at the line that asks for it."""
    for name in ("load", "load_inline"):
        setattr(module, name, _refusing(getattr(module, name), journal))


def _refusing(build: Any, journal: Any) -> Any:
    @functools.wraps(build)
    def made(name: Any, *args: Any, **kwargs: Any) -> Any:
        sources = kwargs.get("sources", args[0] if args else ())
        files = [sources] if isinstance(sources, str) else list(sources or ())
        inline = build.__name__ == "load_inline"
        with_cuda = kwargs.get("with_cuda") or kwargs.get("cuda_sources") or (inline and len(args) > 1 and args[1])
        if not with_cuda and not any(str(file).endswith((".cu", ".cuh")) for file in files):
            return build(name, *args, **kwargs)
        file, line = where()
        what = f"the CUDA extension {name!r}, which needs a real GPU"
        journal.json("unmodelled", what=what, file=file, line=line)
        raise RuntimeError(f"{what}, cannot be rehearsed ({file}:{line})")

    return made


def on_simulator(journal: Any, module: Any) -> None:
    """Say that a simulator needs a real GPU; it may fail by itself later."""
    file, line = where()
    journal.json("unmodelled", what=f"{module.__name__}, a simulator that needs a real GPU", file=file, line=line)
