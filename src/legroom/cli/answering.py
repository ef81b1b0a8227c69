"""How `legroom fit` looks at runs, and where its answer goes: the same for one machine and for many GPUs."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from legroom.cli.writing import show, write_text
from legroom.errors import Unseen
from legroom.fitting.predictor import Predictor, predictor_at_once
from legroom.model.machine import Machine
from legroom.model.run import Run
from legroom.model.verdict import Budget
from legroom.predicting.predict import DeviceName, Mode
from legroom.rendering.console import status, told
from legroom.rendering.document import Document
from legroom.scheduling.requests import System


@dataclass(frozen=True)
class Look:
    """How runs are looked at: the same for every run of one command."""

    machine: Machine
    budget: Budget
    mode: Mode
    device: DeviceName | None
    quiet: bool
    trust: bool = False

    def at_once(self, run: Run) -> Predictor | None:
        """Return what predicts variants by arithmetic, where that takes less time and can tell."""
        if self.mode == "arithmetic":
            return None
        return predictor_at_once(run, self.machine, device=self.device, trust=self.trust)

    def at(self, run: Run, first: str = "") -> Predictor:
        """Return what predicts variants of the run.

        Args:
            first: what is known already, shown meanwhile.

        Raises:
            Unseen: code that decides whether it fits was not imported, because --trust was not given.
        """
        with self.showing(first or f"predicting {run.name}") as shown:
            tell = told(shown)
            predictor = Predictor(
                run, self.machine, mode=self.mode, device=self.device, trust=self.trust,
                progress=(lambda text: tell(f"{first}; {text}")) if first else tell,
            )  # fmt: skip
        if predictor.unseen:
            raise Unseen(run.name, predictor.unseen, path=run.source)
        return predictor

    @property
    def shows(self) -> bool:
        """Whether a terminal shows what is worked on."""
        return not self.quiet and self.mode != "arithmetic" and sys.stderr.isatty()

    def showing(self, text: str) -> AbstractContextManager[Callable[[str], None]]:
        """Show that something is being worked on, where it takes long."""
        return status(text, show=not self.quiet and self.mode != "arithmetic")


@dataclass(frozen=True)
class Answer:
    """Where the answer goes: the screen, another program, files."""

    output: Path | None
    html: Path | None
    json: bool
    system: System | None = None  # whose jobs to describe
    notes: Sequence[str] = ()  # of reading the run

    def write_run(self, fits: bool, file: Callable[[str], str]) -> None:
        """Write the run that fits where `-o` says; `file` makes its text from the command that was given.

        Raises:
            BadInput: it cannot be written.
        """
        if self.output is None or not fits:
            return
        write_text("-o", self.output, file(shlex.join(["legroom", *sys.argv[1:]])))

    def say(self, data: Callable[[], str], document: Document) -> None:
        """Print the result, and write its page where it was asked for."""
        show(data, document, json=self.json, html=self.html)
