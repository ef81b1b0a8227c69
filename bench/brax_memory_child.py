"""One setting of a brax run, compiled and then run for one training step, in a process of its own; prints JSON.

The high-water mark is reset between the two: import, tracing and compiling take about a gigabyte whatever the run, and
would hide what running it takes. The environments begin as one reset robot, many times over: resetting them all would
compile another program, and its memory is not what is measured here. The second training step is measured: what the
first is given is not donated in place, what it returns is.

    python -m bench.brax_memory_child '{"run": {...}, "execute": true}'
"""

import ctypes
import gc
import json
import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

from legroom.backends.brax.capture import Captured, capture
from legroom.backends.brax.plans import Sizes, with_sizes
from legroom.backends.brax.state import without_weak_types
from legroom.model.run import Run

RESET_PEAK = "5"  # to /proc/self/clear_refs


def status(name: str) -> int:
    """Return a line of /proc/self/status in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * 1024
    raise RuntimeError(name)


def one_robot(run: Run) -> Captured:
    """Return the same run with one environment, really begun: its weights, and a state to copy."""
    return capture(with_sizes(run, Sizes(1, 1, 1, 1), 1), real=True)


def first_arguments(shapes: tuple[Any, ...], one: Captured) -> tuple[Any, ...]:
    """Return arguments of these shapes, made of those for one environment."""

    def spread(shape: Any, leaf: Any) -> Any:
        return jax.device_put(np.broadcast_to(np.asarray(leaf), shape.shape).copy())

    return tuple(
        jax.tree_util.tree_map(spread, wanted, given) for wanted, given in zip(shapes, one.arguments, strict=True)
    )


def main() -> None:
    task = json.loads(sys.argv[1])
    run = Run.model_validate(task["run"])
    # what comes out of a cache was not compiled: only the small programs around may
    jax.config.update("jax_enable_compilation_cache", False)
    imported = status("VmRSS")
    began = time.monotonic()
    captured = capture(run)
    lowered = captured.epoch.lower(*captured.arguments)  # type: ignore[attr-defined]
    program = lowered.compile()
    found = {
        "imported": imported, "compiled": status("VmHWM"), "compile_s": time.monotonic() - began,
        "temporaries": program.memory_analysis().temp_size_in_bytes,
    }  # fmt: skip
    if task["execute"]:
        jax.config.update("jax_enable_compilation_cache", True)
        one = one_robot(run)
        del lowered
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)  # what compiling left in malloc's lists would hide the first megabytes
        before = status("VmRSS")
        *begun, keys = first_arguments(captured.arguments, one)
        carry = without_weak_types(jax.block_until_ready(program(*begun, keys))[:-1])
        del begun
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text(RESET_PEAK)
        began = time.monotonic()
        jax.block_until_ready(program(*carry, keys))
        found |= {"growth": status("VmHWM") - before, "execute_s": time.monotonic() - began}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
