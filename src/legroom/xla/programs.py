"""XLA asked what a lowered program needs on a card; what it said is kept by program, card and versions.

The program that is asked about comes from any interpreter; the extra `xla-gpu` has to be in ours. XLA has written its
buffer assignment before it generates code, which takes most of a compilation's time: the child ends right there.
"""

import hashlib
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from legroom.errors import BadInput, MissingExtra
from legroom.installing import install_command
from legroom.machine.cache import cache_folder, read_json, write_json
from legroom.machine.child_process import answer_task, ask_child
from legroom.machine.gpu_table import KnownGpu
from legroom.machine.versions import is_installed, read_versions
from legroom.xla.buffers import read_allocations
from legroom.xla.target import ENVIRONMENT, EXTRA, FLAGS, PACKAGES, PLUGIN, add_flags, plugin_missing, target_text

TIMEOUT_S = 1800.0
WITHOUT_TRITON = "--xla_gpu_enable_triton_gemm=false"  # whose tiles XLA cannot choose for every product untimed
VERSION = 3
_FATAL = re.compile(r"^F\d{4} [\d:.]+ +\d+ (.*)$", re.MULTILINE)  # what XLA writes before it ends the process


@dataclass(frozen=True)
class XlaProgramPlan:
    """What XLA plans for a program: bytes of what it is given, returns, needs in between, and has in itself."""

    arguments: int
    results: int  # that take no argument's place
    temporaries: int
    constants: int
    why_cpu: str = ""  # why it is the plan of the CPU's compiler; empty for the card's


def plan_program(program: Path, card: KnownGpu) -> XlaProgramPlan:
    """Return what XLA plans for a program on the card; where it cannot compile it for the card, on the CPU.

    Raises:
        BadInput: XLA cannot compile it at all, or the plugin is not of jaxlib's version.
        MissingExtra: the compiler for cards is not installed.
    """
    target = target_text(card)
    versions = sorted(read_versions(("jaxlib", *PACKAGES)).items())
    name = hashlib.sha256(repr((VERSION, target, versions)).encode() + program.read_bytes()).hexdigest()[:32]
    kept = cache_folder() / "xla-programs" / f"{name}.json"
    if isinstance(known := read_json(kept), dict):
        return XlaProgramPlan(**known)
    if missing := plugin_missing():
        if all(is_installed(package) for package in PACKAGES):
            raise BadInput(f"XLA cannot be asked for a {card.name}: {missing}", hint=install_command(EXTRA, PLUGIN))
        raise MissingExtra(EXTRA, PLUGIN, what=f"asking XLA for a {card.name}")
    answer = _asked(program, target)
    if "error" in answer:  # as "Couldn't find output tile sizes": a card would take cuBLAS for that product
        without = _asked(program, target, WITHOUT_TRITON)
        answer = answer if "error" in without else without
    if "error" not in answer:
        write_json(kept, answer)
        return XlaProgramPlan(**answer)
    on_cpu = _asked(program, "")
    if "error" in on_cpu:
        raise BadInput(f"XLA cannot compile it for a {card.name}: {answer['error']}")
    return replace(XlaProgramPlan(**on_cpu), why_cpu=str(answer["error"]))


def _asked(program: Path, target: str, flags: str = "") -> dict[str, Any]:
    """Return the answer of a child for a card, or for the CPU where the target is empty; `error` where it has none."""
    task = {"program": str(program), "target": target, "flags": flags}
    found = ask_child("legroom.xla.programs", task, kind="compile", timeout_s=TIMEOUT_S, environment=ENVIRONMENT)
    if found.data is not None:
        return found.data
    fatal = _FATAL.search(found.log)
    return {"error": fatal[1][:500] if fatal else f"no answer {found.how}"}


def main() -> None:
    """Do what the task file says, and write the answer."""
    answer_task(lambda task, _: _answer(task))


def _answer(task: dict[str, Any]) -> dict[str, Any]:
    dump = Path(task["folder"], "dump")
    add_flags(FLAGS, task["flags"], f"--xla_dump_to={dump}")  # which XLA reads when jax is imported
    try:
        return _planned(Path(task["program"]).read_bytes(), task["target"], dump)
    except Exception as error:  # of XLA, whatever it is: its words are the answer
        return {"error": f"{type(error).__name__}: {error}".splitlines()[0][:500]}


def _planned(program: bytes, target: str, dump: Path) -> dict[str, Any]:
    """Return XLA's plan for the card, or for the CPU where the target is empty."""
    import jax
    from jax._src import compiler
    from jax._src.interpreters import mlir
    from jax._src.lib import _jax
    from jax._src.lib.mlir import ir

    from legroom.xla.devices import assignment_file, card_sharding

    device: Any = next(iter(card_sharding(target).device_set)) if target else jax.devices("cpu")[0]
    with mlir.make_ir_context():
        module = ir.Module.parse(_readable(program, _jax))
        options = compiler.get_compile_options(num_replicas=1, num_partitions=1)
        devices: Any = _jax.DeviceList((device,))

        def compile_it() -> None:
            compiler.backend_compile_and_load(device.client, module, devices, options, [])

        return read_allocations(assignment_file(compile_it, "", dump).read_text())


def _readable(program: bytes, library: Any) -> Any:
    try:
        return library.mlir.deserialize_portable_artifact(program)
    except Exception:  # as the program's own jaxlib wrote it
        return program
