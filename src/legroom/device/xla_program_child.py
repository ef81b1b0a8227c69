"""The child process that has XLA plan a lowered program for a card or the CPU: the task's file in, the answer's out.

XLA has written its buffer assignment before it generates code, which takes most of a compilation's time: the process
ends right there. XLA reads its flags when jax is imported, so they are set first.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from legroom.device import xla_target
from legroom.device.xla_buffers import read_allocations
from legroom.device.xla_lines import held_lines
from legroom.machine.child_process import write_answer


def main() -> None:
    """Do what the task file says, and write the answer."""
    task = json.loads(Path(sys.argv[-1]).read_bytes())
    dump = Path(task["folder"], "dump")
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {xla_target.FLAGS} --xla_dump_to={dump}"
    answer: dict[str, Any]
    try:
        answer = _planned(Path(task["program"]).read_bytes(), task["target"], dump)
    except Exception as error:  # of XLA, whatever it is: its words are the answer
        answer = {"error": f"{type(error).__name__}: {error}".splitlines()[0][:500]}
    write_answer(Path(task["answer"]), answer)
    os._exit(0)  # a compilation may still be going on in a thread


def _planned(program: bytes, target: str, dump: Path) -> dict[str, Any]:
    """Return XLA's plan for the card, or for the CPU where the target is empty."""
    import jax
    from jax._src import compiler
    from jax._src.interpreters import mlir
    from jax._src.lib import _jax
    from jax._src.lib.mlir import ir

    from legroom.device.xla_devices import ASSIGNMENT, assignment_file, card_sharding

    device: Any = next(iter(card_sharding(target).device_set)) if target else jax.devices("cpu")[0]
    with mlir.make_ir_context():
        module = ir.Module.parse(_readable(program, _jax))
        options = compiler.get_compile_options(num_replicas=1, num_partitions=1)
        devices: Any = _jax.DeviceList((device,))

        def compile_it() -> None:
            compiler.backend_compile_and_load(device.client, module, devices, options, [])

        written = assignment_file(compile_it, "", dump)
        assignment, optimised = written.read_text(), Path(str(written).replace(ASSIGNMENT, ".txt"))
        return {**read_allocations(assignment), "held": held_lines(assignment, optimised.read_text())}


def _readable(program: bytes, library: Any) -> Any:
    try:
        return library.mlir.deserialize_portable_artifact(program)
    except Exception:  # as the program's own jaxlib wrote it
        return program
