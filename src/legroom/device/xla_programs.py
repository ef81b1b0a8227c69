"""Ask XLA what a lowered program needs on a card: the parent of `xla_program_child`; imports no jax.

What was said is kept by program, card and versions. The program that is asked about comes from any interpreter; the
extra `xla-gpu` has to be in ours.
"""

import hashlib
import json
import os
import re
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from legroom.device.xla_target import ENVIRONMENT, EXTRA, PACKAGES, PLUGIN, plugin_missing, target_text
from legroom.errors import BadInput, MissingExtra
from legroom.installing import install_command
from legroom.machine.cache import cache_folder, read_json, write_json
from legroom.machine.child_process import how_it_ended, run_child
from legroom.machine.gpu_table import KnownGpu
from legroom.machine.temporary_folder import temporary_folder
from legroom.machine.versions import is_installed, read_versions

CHILD = "legroom.device.xla_program_child"
TIMEOUT_S = 1800.0
VERSION = 2
_FATAL = re.compile(r"^F\d{4} [\d:.]+ +\d+ (.*)$", re.MULTILINE)  # what XLA writes before it ends the process


@dataclass(frozen=True)
class ProgramPlan:
    """What XLA plans for a program: bytes of what it is given, returns, needs in between, and has in itself.

    Args:
        results: that take no argument's place.
        held: of `temporaries` at their fullest and of `results`: bytes, and numbers of the source lines that hold
            them, the innermost first (`hollow/jax_places.py`); less than all of them where XLA names no line.
        why_cpu: why it is the plan of the CPU's compiler; empty for the card's.
    """

    arguments: int
    results: int
    temporaries: int
    constants: int
    held: dict[str, list[tuple[int, tuple[int, ...]]]] = field(default_factory=dict)
    why_cpu: str = ""


def plan_program(program: Path, card: KnownGpu) -> ProgramPlan:
    """Return what XLA plans for a program on the card; where it cannot compile it for the card, on the CPU.

    Raises:
        BadInput: XLA cannot compile it at all, or the plugin is not of jaxlib's version.
        MissingExtra: the compiler for cards is not installed.
    """
    target = target_text(card)
    versions = sorted(read_versions(("jaxlib", *PACKAGES)).items())
    name = hashlib.sha256(repr((VERSION, target, versions)).encode() + program.read_bytes()).hexdigest()[:32]
    kept = cache_folder() / "xla-programs" / f"{name}.json"
    if isinstance(known := read_json(kept), dict) and "held" in known:
        return _plan(known)
    if missing := plugin_missing():
        if all(is_installed(package) for package in PACKAGES):
            raise BadInput(f"XLA cannot be asked for a {card.name}: {missing}", hint=install_command(EXTRA, PLUGIN))
        raise MissingExtra(EXTRA, PLUGIN, what=f"asking XLA for a {card.name}")
    answer = _asked(program, target)
    if "error" not in answer:
        write_json(kept, answer)
        return _plan(answer)
    on_cpu = _asked(program, "")
    if "error" in on_cpu:
        raise BadInput(f"XLA cannot compile it for a {card.name}: {answer['error']}")
    return replace(_plan(on_cpu), why_cpu=str(answer["error"]))


def _asked(program: Path, target: str) -> dict[str, Any]:
    """Return the answer of a child for a card, or for the CPU where the target is empty; `error` where it has none."""
    with temporary_folder("compile") as folder:
        task_file, answer_file, log_file = (folder / each for each in ("task.json", "answer.json", "log"))
        task = {"program": str(program), "target": target, "answer": str(answer_file), "folder": str(folder)}
        task_file.write_text(json.dumps(task))
        environment = {
            **os.environ, **ENVIRONMENT, "JAX_ENABLE_COMPILATION_CACHE": "0", "TF_CPP_MIN_LOG_LEVEL": "3",
        }  # fmt: skip
        code = run_child(CHILD, sys.path, task_file, log_file, timeout_s=TIMEOUT_S, environment=environment)
        answer = read_json(answer_file)
        if isinstance(answer, dict):
            return answer
        if fatal := _FATAL.search(log_file.read_text(errors="replace")):
            return {"error": fatal[1][:500]}
        how = f"after {TIMEOUT_S:g} s" if code is None else how_it_ended(code, log_file)
        return {"error": f"no answer {how}"}


def _plan(answer: dict[str, Any]) -> ProgramPlan:
    held = {kind: [(int(each[0]), tuple(each[1])) for each in rows] for kind, rows in answer["held"].items()}
    return ProgramPlan(**{**answer, "held": held})
