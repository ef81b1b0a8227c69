"""`with legroom.rehearse(gpu="RTX 4070") as rehearsal:` around any torch code, in scripts and notebooks.

The guest (`legroom.hollow`) is made for processes of its own, which it changes for good. Here everything that it
replaces in torch is put back: all names of torch's modules and of the classes that it changes are remembered before and
compared after. Tensors made inside have no bytes, and stay so. Files that Python code writes inside go to a temporary
folder, which is removed with it; programs that it starts and C libraries that open files write for real.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterator, MutableMapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any
from unittest import mock

from legroom.backends.program.journals import Journals
from legroom.backends.program.launching import Writes
from legroom.backends.program.program_bill import predicted
from legroom.backends.program.rehearsing import FILES, ProgramSeen, RehearsalPlan, read_journals
from legroom.errors import BadInput, in_python
from legroom.machine import probe
from legroom.machine.gpu_table import find_gpu
from legroom.machine.temporary_folder import temporary_folder
from legroom.machine.tree import process_memory
from legroom.model.footprint import Footprint
from legroom.model.rehearsal import HostSeen, ProgramPrediction, Stopped
from legroom.model.verdict import Budget
from legroom.predicting.gpu import CONTEXT_BYTES
from legroom.units import parse_size

DEFAULT_CARD = "RTX 4090"
PLAN = "LEGROOM_REHEARSAL_PLAN"
NAME = "this code"


class rehearse:  # noqa: N801  used as a statement, like open()
    """Run the torch code of a `with` block on a simulated GPU; afterwards `footprint` says what it took.

    An OutOfMemoryError of that GPU ends the block quietly, since it is the answer. Other exceptions propagate.

    Args:
        gpu: a GPU's name; without this and `vram` the GPU has no limit.
        vram: its memory, as in `"8GiB"`.
        ram: host memory to compare with; default: what is free.
        values: `assume` or `real`, as in `legroom predict --values`.
        keep_writes: files that the block writes, renames or deletes are not put back.

    Raises:
        BadInput: no such GPU, not a size, a function (it is no decorator), or a block inside another.

    Example:
        >>> import legroom, torch
        >>> with legroom.rehearse(gpu="RTX 4070") as rehearsal:
        ...     kept = torch.zeros(256, 1024, 1024, device="cuda")
        >>> rehearsal.footprint.gpu.nbytes > 1 << 30
        True
    """

    _inside = False

    @in_python()
    def __init__(
        self, gpu: str | None = None, *, vram: str | int | None = None, ram: str | int | None = None,
        values: str = "assume", keep_writes: bool = False,
    ) -> None:  # fmt: skip
        if values not in ("assume", "real"):
            raise BadInput(f"values={values!r} is neither 'assume' nor 'real'")
        if not isinstance(gpu, str | None):
            what = getattr(gpu, "__qualname__", repr(gpu))
            hint = f"with legroom.rehearse(): {what}()" if callable(gpu) else f"write it as gpu={DEFAULT_CARD!r}"
            raise BadInput(f"gpu={what} is not the name of a GPU", hint=hint)
        card = find_gpu(gpu or DEFAULT_CARD).as_gpu()
        limited = gpu is not None or vram is not None
        nbytes = card.total if vram is None else parse_size(vram, what="vram")
        card = replace(card, total=nbytes, free=nbytes)
        given = probe().available if ram is None else parse_size(ram, what="ram")
        origin = "given" if vram is not None else f"free on a {card.name}"
        self._budget = Budget(given, nbytes if limited else None, 0.0, "given", origin)
        limit = max(0, nbytes - CONTEXT_BYTES) if limited else None
        writes: Writes = "kept" if keep_writes else "redirected"
        self._plan = RehearsalPlan(card=card, limit=limit, values=values, writes=writes)
        self._stack = ExitStack()
        self._prediction: ProgramPrediction | None = None

    @property
    def prediction(self) -> ProgramPrediction:
        """The footprint with its verdict and all that was seen.

        Raises:
            BadInput: the block has not ended yet.
        """
        if self._prediction is None:
            raise BadInput("the rehearsal has not ended yet", hint="ask after the with block")
        return self._prediction

    @property
    def footprint(self) -> Footprint:
        """What the block took, once it has ended."""
        return self.prediction.footprint

    @property
    def fits(self) -> bool | None:
        """Whether it fits; None where that is not known."""
        return self.prediction.fits

    def __enter__(self) -> rehearse:
        if rehearse._inside:
            raise BadInput("a rehearsal inside another", hint="one with block after the other")
        rehearse._inside = True
        try:
            self._folder = self._stack.enter_context(temporary_folder("rehearsal"))
            self._began = time.monotonic()
            self._stack.enter_context(_installed(self._folder, self._plan))
            if self._plan.writes == "redirected":
                self._stack.enter_context(_redirected(self._folder))
        except BaseException:
            rehearse._inside = False
            self._stack.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        of_card = kind is not None and kind.__name__ == "OutOfMemoryError"
        try:
            seen = ProgramSeen(self._plan)
            journals = Journals(self._folder)
            read_journals(journals, seen)
            memory = process_memory("self")
            host = HostSeen(memory.pss if memory else 0, memory.pss if memory else 0, 0, 1)
            stopped: Stopped = "finished" if kind is None else "out-of-memory" if of_card else "failed"
            found = seen.rehearsal((NAME,), stopped, None, time.monotonic() - self._began, host=host, of_card=of_card)
            found = replace(found, notes=(*found.notes, FILES[self._plan.writes]))
            self._prediction = predicted(found, self._budget)
        finally:
            rehearse._inside = False
            self._stack.close()
        return of_card


@contextmanager
def _installed(folder: Path, plan: RehearsalPlan) -> Iterator[None]:
    """Have the card in this process, and afterwards torch as it was."""
    import torch
    from torch.utils._python_dispatch import _get_current_dispatch_mode

    from legroom.hollow import cuda_facade, install, tensor_facade  # noqa: F401  remembered as they are
    from legroom.hollow.journal import Journal

    before = _Before(torch)
    with ExitStack() as stack:
        stack.callback(before.restore)
        kept = stack.enter_context(ExitStack())
        with (
            mock.patch.dict(os.environ, {PLAN: json.dumps(plan.for_guest())}),
            mock.patch.object(install, "_kept", kept.enter_context),
        ):
            journal = Journal(str(folder / f"journal-{os.getpid()}"))
            journal.json("started", argv=sys.argv, python=sys.version.split()[0])
            follower = install.on_torch(journal)
        mode: Any = _get_current_dispatch_mode()
        try:
            yield
        finally:
            follower.give_back()
            follower.following = False
            mode.__exit__(None, None, None)


@contextmanager
def _redirected(folder: Path) -> Iterator[None]:
    """Have what Python writes go to the folder, and afterwards its functions as they were."""
    from legroom.hollow.redirecting import Redirection

    redirection = Redirection(str(folder))
    if "torch" in sys.modules:
        redirection.on_torch(sys.modules["torch"])
    if "sqlite3.dbapi2" in sys.modules:
        redirection.on_sqlite(sys.modules["sqlite3"])
    try:
        yield
    finally:
        redirection.undo()


class _Before:
    """The names of torch's modules and classes, as they were."""

    def __init__(self, torch: Any) -> None:
        self._hook = sys.excepthook
        modules = [
            module for name, module in list(sys.modules.items())
            if name.partition(".")[0] in ("torch", "pynvml", "threading") and hasattr(module, "__dict__")
        ]  # fmt: skip
        hidden = [torch.backends.cudnn.is_acceptable.__globals__]  # the module is behind one that has properties
        optimizers = sys.modules["torch.optim.optimizer"]
        hooks = [optimizers._global_optimizer_pre_hooks, optimizers._global_optimizer_post_hooks]
        tables: list[MutableMapping[Any, Any]] = [*(vars(module) for module in modules), *hidden, *hooks]
        self._nvml = sys.modules.get("pynvml")
        self._readers = list(torch.serialization._package_registry)
        self._tables = [(table, dict(table)) for table in tables]
        kinds = {
            kind for module in modules for kind in list(vars(module).values())
            if issubclass(type(kind), type) and kind.__module__.startswith("torch") and kind.__flags__ & (1 << 9)
        } | {threading.Thread}  # fmt: skip
        self._kinds = [(kind, dict(vars(kind))) for kind in kinds]

    def restore(self) -> None:
        sys.excepthook = self._hook
        sys.modules["torch.serialization"]._package_registry[:] = self._readers
        if self._nvml is None:
            sys.modules.pop("pynvml", None)
        else:
            sys.modules["pynvml"] = self._nvml
        for table, before in self._tables:
            for name in [name for name in table if name not in before]:
                if name not in sys.modules and not isinstance(table[name], type(sys)):  # modules that came meanwhile
                    del table[name]
            for name, value in before.items():
                if table.get(name) is not value:
                    table[name] = value
        for kind, names in self._kinds:
            now = vars(kind)
            for name in [name for name in now if name not in names]:
                with suppress(AttributeError, TypeError):  # a few of C's classes allow no change, and were not changed
                    delattr(kind, name)
            for name, value in names.items():
                if now.get(name) is not value:
                    with suppress(AttributeError, TypeError):
                        setattr(kind, name, value)
