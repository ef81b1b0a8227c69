"""What is asked about: runs from plain data or from a text, and where they go.

JSON from strangers is bounded before it is parsed, holds plain numbers only, and its errors fit on a line. Of a text
that was pasted or dropped nothing is executed or imported, and no file that it names is read.
"""

from __future__ import annotations

import ast
import json
import math
import re
import shlex
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NoReturn

from legroom.backends.base import backend_of
from legroom.errors import BadInput
from legroom.explaining.explain import explain
from legroom.machine import probe
from legroom.machine.gpu_table import find_gpu
from legroom.model.machine import Gpu, Machine
from legroom.model.run import Run
from legroom.model.trace import Explanation
from legroom.model.verdict import Budget
from legroom.predicting.predict import DeviceName
from legroom.reading import read_given, run_from_dict, script_given
from legroom.reading.user_files import decode
from legroom.units import parse_size

MACHINE_HOLDS_S = 2.0  # while somebody drags a slider, what is available shall not flicker
LONGEST_TEXT = 200
DEEPEST = 40  # run files have five levels, a brax network a few more
LONGEST_NUMBER = 40  # digits; Python takes quadratic time to read thousands of them
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_BRACKETS = re.compile(r"[\[\]{}]")
_LONG_NUMBER = re.compile(rf"\d{{{LONGEST_NUMBER + 1}}}")
CONFIGS = (".yaml", ".yml", ".json")
STARTERS = re.compile(r"(?:.*/)?(?:python[\d.]*|torchrun|accelerate|uv|poetry|pixi)")  # begin a command line
REHEARSE = "any PyTorch program: legroom predict -- python train.py"


@dataclass(frozen=True)
class TargetMachine:
    """Where a run is meant to go: a machine, what of it may be used, and whether that is a GPU's."""

    machine: Machine
    budget: Budget
    device: DeviceName | None


class LocalMachine:
    """This machine, looked at again every few seconds at most."""

    def __init__(self) -> None:
        self._machine, self._until = probe(), time.monotonic() + MACHINE_HOLDS_S

    def machine(self) -> Machine:
        if time.monotonic() > self._until:
            self._machine, self._until = probe(), time.monotonic() + MACHINE_HOLDS_S
        return self._machine


def place_asked(asked: Mapping[str, Any], machine: Machine) -> TargetMachine:
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
    return TargetMachine(machine, budget, wanted)


def place_options(asked: Mapping[str, Any]) -> Iterator[str]:
    """Yield the options of `legroom predict` for a place that `place_asked` has read."""
    yield from (f"--{name}={asked[name]}" for name in ("ram", "vram", "gpu", "reserve") if asked.get(name))
    if asked.get("device") == "cpu":
        yield "--cpu-only"


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


@dataclass(frozen=True)
class Recognised:
    """One of these; of a run also the settings that its script does not tell."""

    runs: tuple[tuple[Run, list[str]], ...] = ()
    explanation: Explanation | None = None
    command: tuple[str, ...] = ()


def recognise(text: str, name: str = "") -> Recognised:
    """Return what the text is.

    Args:
        name: of the file that it was; empty where it was pasted.

    Raises:
        BadInput: it is nothing of the sort, or something in it cannot be.
    """
    text = decode(text.encode("utf-8", "replace"), name or "the text")
    if not name and (command := command_in(text)):
        return Recognised(command=command)
    suffix = name.lower()[name.rfind(".") :] if "." in name else ""
    if suffix == ".py" or (suffix not in CONFIGS and _is_script(text)):
        return Recognised(runs=_script(text, name or "train.py"))
    if suffix not in CONFIGS:
        explained = explain(text)
        if explained.recognised:
            return Recognised(explanation=explained)
    if suffix in CONFIGS or _is_mapping(text):
        return Recognised(runs=tuple((run, []) for run in read_given(text, name if suffix in CONFIGS else "run.yaml")))
    raise BadInput(
        "no script, run file or out-of-memory error recognised",
        hint="paste the whole file, or the whole error with its traceback",
    )


def command_in(text: str) -> tuple[str, ...]:
    """Return the words of a command that starts a program, as it is pasted from a terminal; empty where it is none."""
    line = text.strip().replace("\\\n", " ").removeprefix("$ ")
    try:
        words = shlex.split(line) if "\n" not in line else []
    except ValueError:
        return ()
    if words[:1] == ["legroom"] and "--" in words:
        words = words[words.index("--") + 1 :]
    program = next((word for word in words if not re.match(r"\w+=", word)), "")
    if not STARTERS.fullmatch(program):
        return ()
    return (*(["env"] if program != words[0] else []), *words)


def _is_script(text: str) -> bool:
    """Return whether a text is Python: it parses, and imports or calls something. Plain YAML often parses as well."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return any(isinstance(node, ast.Import | ast.ImportFrom | ast.FunctionDef) for node in tree.body)


def _script(text: str, name: str) -> tuple[tuple[Run, list[str]], ...]:
    try:
        found = tuple(script_given(text, name))
    except BadInput as error:
        hint = "; ".join(filter(None, (error.hint, REHEARSE)))
        raise BadInput(error.message, path=error.path, line=error.line, hint=hint) from None
    if not found:
        raise BadInput("no algorithm found in this file", path=name, hint=REHEARSE)
    return found


def _is_mapping(text: str) -> bool:
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    return bool(lines) and (lines[0].lstrip().startswith("{") or ":" in lines[0])


def with_spaces(run: Run) -> tuple[Run, str | None]:
    """Return the run, with assumed spaces where nothing but its environment would tell them, and what was assumed."""
    backend = backend_of(run)
    if (run.env.spaces or backend.predictor.prepared(run, "arithmetic", lambda text: None).env.spaces) is not None:
        return run, None
    pictures = run.policy.name == "CnnPolicy"
    seen = {"type": "box", "shape": [84, 84, 3] if pictures else [64], "dtype": "uint8" if pictures else "float32"}
    observation = {"type": "dict", "spaces": {"observation": seen}} if run.policy.name == "MultiInputPolicy" else seen
    data = run.model_dump(exclude_defaults=True)
    for action in ({"type": "discrete", "n": 4}, {"type": "box", "shape": [4]}):
        data["env"] = {**data.get("env", {}), "spaces": {"observation": observation, "action": action}}
        assumed = run_from_dict(data)
        if not any(finding.code == "LR003" for finding in backend.predictor.constraints(assumed)):
            break
    return assumed, "×".join(map(str, seen["shape"])) + f" {seen['dtype']}"
