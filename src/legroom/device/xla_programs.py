"""Ask XLA what a lowered program needs on a card: the parent of `xla_program_child`; imports no jax.

What was said is kept by program, card and versions. The program that is asked about comes from any interpreter; the
extra `xla-gpu` has to be in ours.
"""

import hashlib
import json
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from legroom.device.xla_target import ENVIRONMENT, EXTRA, PACKAGES, PLUGIN, plugin_missing, target_text
from legroom.errors import BadInput, MissingExtra
from legroom.machine.cache import cache_folder, read_json, write_json
from legroom.machine.child_process import how_it_ended, run_child
from legroom.machine.gpu_table import KnownGpu
from legroom.machine.temporary_folder import temporary_folder
from legroom.machine.versions import read_versions

CHILD = "legroom.device.xla_program_child"
TIMEOUT_S = 1800.0
VERSION = 2


@dataclass(frozen=True)
class ProgramPlan:
    """What XLA plans for a program: bytes of what it is given, returns, needs in between, and has in itself.

    Args:
        results: that take no argument's place.
        held: of `temporaries` at their fullest and of `results`: bytes, and numbers of the source lines that hold
            them, the innermost first (`hollow/jax_places.py`); less than all of them where XLA names no line.
    """

    arguments: int
    results: int
    temporaries: int
    constants: int
    held: dict[str, list[tuple[int, tuple[int, ...]]]] = field(default_factory=dict)


def plan_program(program: Path, card: KnownGpu) -> ProgramPlan:
    """Return what XLA plans for a program on the card.

    Raises:
        BadInput: XLA cannot compile it for the card.
        MissingExtra: the compiler for cards is not installed.
    """
    target = target_text(card)
    versions = sorted(read_versions(("jaxlib", *PACKAGES)).items())
    name = hashlib.sha256(repr((VERSION, target, versions)).encode() + program.read_bytes()).hexdigest()[:32]
    kept = cache_folder() / "xla-programs" / f"{name}.json"
    if isinstance(known := read_json(kept), dict) and "held" in known:
        return _plan(known)
    if missing := plugin_missing():
        raise MissingExtra(EXTRA, PLUGIN, what=f"asking XLA for a {card.name} ({missing})")
    with temporary_folder("compile") as folder:
        task_file, answer_file, log_file = (folder / each for each in ("task.json", "answer.json", "log"))
        task = {"program": str(program), "target": target, "answer": str(answer_file), "folder": str(folder)}
        task_file.write_text(json.dumps(task))
        environment = {
            **os.environ, **ENVIRONMENT, "JAX_ENABLE_COMPILATION_CACHE": "0", "TF_CPP_MIN_LOG_LEVEL": "3",
        }  # fmt: skip
        code = run_child(CHILD, sys.path, task_file, log_file, timeout_s=TIMEOUT_S, environment=environment)
        answer = read_json(answer_file)
        if not isinstance(answer, dict):
            how = f"after {TIMEOUT_S:g} s" if code is None else how_it_ended(code, log_file)
            raise BadInput(f"XLA gave no answer for a {card.name} {how}")
    if "error" in answer:
        raise BadInput(f"XLA cannot compile it for a {card.name}: {answer['error']}")
    write_json(kept, answer)
    return _plan(answer)


def _plan(answer: dict[str, Any]) -> ProgramPlan:
    held = {kind: [(int(each[0]), tuple(each[1])) for each in rows] for kind, rows in answer["held"].items()}
    return ProgramPlan(**{**answer, "held": held})
