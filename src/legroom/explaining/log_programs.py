"""Which program a log is of, and the settings of that program that change its memory (`programs.toml`).

legroom's own keys are for runs that legroom trains. A log of verl, TRL, Isaac Lab or vLLM gets the settings of that
program instead, by the names that its documentation has; which one it is, paths, loggers and Ray's actors tell.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from legroom.explaining.frames import TracebackFrame
from legroom.explaining.log import Log
from legroom.model.plan import Price
from legroom.model.trace import Advice
from legroom.units import GIB

BEFORE, AFTER = 8000, 1500  # characters around a message in which a program shows itself
MUCH = 2 * GIB  # held outside PyTorch: CUDA's context, cuBLAS, cuDNN and NCCL together take 0.3 to 1.5 GiB
TABLE: Mapping[str, Any] = tomllib.loads(Path(__file__).with_name("programs.toml").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class LoggedProgram:
    """A program, what betrays it, and what helps where its GPU or its host is full."""

    name: str
    pattern: str
    gpu: tuple[Advice, ...] = ()
    host: tuple[Advice, ...] = ()
    prefix: str = ""  # what the trainer puts before vLLM's `gpu_memory_utilization`
    simulates: bool = False  # its environments live on the GPU; such programs are written in any case
    engine: bool = False  # it is used by others, and meant where it raised the error itself
    rehearsed: bool = True  # legroom can run it on a simulated GPU


def remedy(knob: str, price: Price, say: str, command: str = "") -> Advice:
    """Return advice about a setting of another program: there is no command of ours for it."""
    return Advice(knob, price, say, command)


REMEDIES = {name: remedy(*given) for name, given in TABLE["remedies"].items()}


def remedies(given: Iterable[str | list[Any]]) -> tuple[Advice, ...]:
    """Return the advice of a row of the table, in which some is named and some written out."""
    return tuple(REMEDIES[one] if isinstance(one, str) else remedy(*one) for one in given)


PROGRAMS = tuple(
    LoggedProgram(**{**row, "gpu": remedies(row.get("gpu", ())), "host": remedies(row.get("host", ()))})
    for row in TABLE["program"]
)
BASELINES, RAY_RUNS = (next(p for p in PROGRAMS if p.name == name) for name in ("Stable-Baselines3", "Ray RLlib"))


def surroundings(log: Log, place: int) -> str:
    """Return the text in which a program shows itself."""
    return f"{log.around(place, before=BEFORE, after=AFTER)}\n{log.actors}"


def program_of(log: Log, place: int, frames: tuple[TracebackFrame, ...] = ()) -> LoggedProgram | None:
    """Return the program whose failure stands at `place`: an engine that raised it, else what the lines around name."""
    raised = "\n".join(frame.signature for frame in frames[-3:])
    text = surroundings(log, place)
    return next((one for one in PROGRAMS if one.engine and re.search(one.pattern, raised)), None) or next(
        (one for one in PROGRAMS if re.search(one.pattern, text, re.IGNORECASE if one.simulates else 0)), None
    )


def grabbing(log: Log, place: int) -> tuple[Advice, ...]:
    """Return the settings of libraries in the log that take most of the GPU when they start."""
    text = surroundings(log, place)
    return remedies(row["setting"] for row in TABLE["grabbing"] if re.search(row["pattern"], text))
