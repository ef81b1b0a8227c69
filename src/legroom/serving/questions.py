"""What is asked about: a run and the machine it is meant for, from plain data.

JSON from strangers is bounded before it is parsed, holds plain numbers only, and its errors fit on a line.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NoReturn

from legroom.errors import BadInput
from legroom.machine import probe
from legroom.machine.gpu_table import find_gpu
from legroom.model.machine import Gpu, Machine
from legroom.model.run import Run
from legroom.model.verdict import Budget
from legroom.predicting.predict import DeviceName
from legroom.reading import run_from_dict
from legroom.units import parse_size

MACHINE_HOLDS_S = 2.0  # while somebody drags a slider, what is available shall not flicker
LONGEST_TEXT = 200
DEEPEST = 40  # run files have five levels, a brax network a few more
LONGEST_NUMBER = 40  # digits; Python takes quadratic time to read thousands of them
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_BRACKETS = re.compile(r"[\[\]{}]")
_LONG_NUMBER = re.compile(rf"\d{{{LONGEST_NUMBER + 1}}}")


@dataclass(frozen=True)
class Place:
    """Where a run is meant to go: a machine, what of it may be used, and whether that is a GPU's."""

    machine: Machine
    budget: Budget
    device: DeviceName | None
    card: str | None


class Here:
    """This machine, looked at again every few seconds at most."""

    def __init__(self) -> None:
        self._machine, self._until = probe(), time.monotonic() + MACHINE_HOLDS_S

    def machine(self) -> Machine:
        if time.monotonic() > self._until:
            self._machine, self._until = probe(), time.monotonic() + MACHINE_HOLDS_S
        return self._machine


def place_asked(asked: Mapping[str, Any], machine: Machine) -> Place:
    """Return the place that `ram`, `vram`, `gpu`, `device` and `reserve` name, as the options of `legroom predict` do.

    Raises:
        BadInput: one of them cannot be read, no such card is known, or they contradict each other.
    """
    ram, vram, gpu, device = (_text(asked, name) for name in ("ram", "vram", "gpu", "device"))
    if device not in (None, "cpu", "cuda"):
        raise BadInput(f"unknown device {device!r}", hint="cpu or cuda")
    if device == "cpu" and (vram or gpu):
        raise BadInput("device cpu contradicts a GPU", hint="leave one of them out")
    if gpu is not None:
        machine = replace(machine, gpus=(_card(gpu),))
    budget = Budget(machine.available, None, _share(asked.get("reserve")), f"available {machine.place}")
    if ram is not None:
        budget = replace(budget, ram=parse_size(ram, what="ram"), ram_origin="given")
    if machine.gpus and device != "cpu":
        first = machine.gpus[0]
        budget = replace(budget, vram=first.free, vram_origin=f"free on a {first.name}")
    if vram is not None:
        budget = replace(budget, vram=parse_size(vram, what="vram"), vram_origin="given")
    wanted: Any = device or ("cuda" if vram or gpu else None)
    return Place(machine, budget, wanted, machine.gpus[0].name if machine.gpus else None)


def place_options(asked: Mapping[str, Any]) -> Iterator[str]:
    """Yield the options of `legroom predict` for a place that `place_asked` has read."""
    for name in ("ram", "vram", "gpu"):
        if asked.get(name):
            yield f"--{name}={asked[name]}"
    if asked.get("device") == "cpu":
        yield "--cpu-only"
    if asked.get("reserve"):
        yield f"--reserve={asked['reserve']}"


@lru_cache(maxsize=64)
def _card(name: str) -> Gpu:
    return find_gpu(name).as_gpu()  # a table of a hundred names, searched as people spell them: 9 ms


def run_asked(data: Any) -> Run:
    """Return the run that plain data describes, whatever it says about where it was read.

    Raises:
        BadInput: something in it cannot be.
    """
    if isinstance(data, dict):
        data = {key: value for key, value in data.items() if key != "source"}
    return run_from_dict(data).model_copy(update={"source": "the page"})  # as a run file, which `legroom train` trains


def plain_run(run: Run) -> dict[str, Any]:
    """Return the run as the page keeps it and sends it back."""
    data = run.model_dump(exclude_defaults=True)
    data.pop("source", None)
    return {**data, "name": run.name, "backend": run.backend}


def _text(asked: Mapping[str, Any], name: str) -> str | None:
    value = asked.get(name)
    if value is None or value == "":
        return None
    if isinstance(value, bool) or not isinstance(value, str | int) or len(str(value)) > LONGEST_TEXT:
        raise BadInput(f"{name} must be a short text", hint="as 16GiB, or RTX 4070")
    return str(value)


def _share(value: Any) -> float:
    if value is None or value == "":
        return 0.0
    try:
        share = float(value)
    except (TypeError, ValueError, OverflowError):
        share = -1.0
    if not 0 <= share < 1:
        raise BadInput("reserve must be a share between 0 and 1", hint="0.1 keeps a tenth free")
    return share


def parse_json(data: bytes) -> Any:
    """Return the value that the text holds.

    Raises:
        BadInput: it is not UTF-8, not JSON, nested too deeply, or holds a number that is none.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise BadInput("the request is not UTF-8 text", hint="send JSON") from None
    bare = _STRING.sub('""', text)
    depth = 0
    for bracket in _BRACKETS.finditer(bare):
        depth += 1 if bracket[0] in "[{" else -1
        if depth > DEEPEST:
            raise BadInput(f"the request is nested more than {DEEPEST} levels deep", hint="run files are flat")
    if _LONG_NUMBER.search(bare):
        raise BadInput(f"the request holds a number of more than {LONGEST_NUMBER} digits", hint="write a size")
    try:
        return json.loads(text, parse_constant=_no_number, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        where = f" at line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise BadInput(f"the request is not JSON{where}", hint='send a run as {"algo": …, "env": …}') from None


def _no_number(name: str) -> NoReturn:
    raise BadInput(f"the request holds {name}, which is not a number", hint="leave it out")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise BadInput(f"the request holds {text}, which is too large for a number", hint="write a size")
    return number
