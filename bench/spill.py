"""What stays in memory of lean storage that spills: the limit, and the index of what is on disk.

Noise, which nothing shortens, in observations of several sizes, with far more of it than the limit lets in.

    python -m bench.spill
"""

from __future__ import annotations

import subprocess
import sys

import numpy as np
from gymnasium import spaces

from bench.results import write_section
from legroom.backends.sb3.bill.lean import INDEX_SHARE, INDEX_SHARE_ERROR, OPEN_ERROR, OPEN_NBYTES
from legroom.machine.tree import process_memory
from legroom.units import MIB

CASES = (
    ((4, 84, 84), "uint8", 8192, 16),
    ((4, 84, 84), "uint8", 16_384, 16),
    ((17, 30, 30, 30), "float32", 256, 16),
    ((600,), "uint8", 100_000, 4),
)
ENVS = 2


def measure(number: int) -> None:
    """Fill one rollout, in a process of its own, and print by how much its memory grew at most."""
    import torch

    from legroom import LeanRolloutBuffer

    shape, dtype, rows, limit_mib = CASES[number]
    space = spaces.Box(0, 255, shape, np.dtype(dtype).type)
    buffer = LeanRolloutBuffer(rows, space, spaces.Discrete(2), n_envs=ENVS, max_bytes=limit_mib * MIB)
    random, none = np.random.default_rng(0), np.zeros(ENVS)
    before, most = _uss(), 0
    for row in range(rows):
        frames = random.integers(0, 255, (ENVS, *shape)).astype(dtype)
        buffer.add(frames, np.zeros((ENVS, 1)), none, none.astype(bool), torch.zeros(ENVS), torch.zeros(ENVS))
        if row % 64 == 0:
            most = max(most, _uss() - before)
    print(max(most, _uss() - before))


def _uss() -> int:
    memory = process_memory("self")
    assert memory is not None
    return memory.uss


def main() -> int:
    if len(sys.argv) > 1:
        measure(int(sys.argv[1]))
        return 0
    rows, good = [], True
    for number, (shape, dtype, steps, limit_mib) in enumerate(CASES):
        done = subprocess.run(
            [sys.executable, "-m", "bench.spill", str(number)], capture_output=True, text=True, check=True
        )
        each = int(np.prod(shape)) * np.dtype(dtype).itemsize
        stored = steps * ENVS * each
        beside = steps * ENVS * 36 + 2 * ENVS * each  # actions and scalars, and what is held of the last observations
        index = int(done.stdout) - limit_mib * MIB - beside
        most = (INDEX_SHARE + INDEX_SHARE_ERROR) * stored + OPEN_NBYTES + OPEN_ERROR
        good &= index <= most
        rows.append([
            f"{'×'.join(map(str, shape))} {dtype}", f"{stored / MIB:.0f}", limit_mib, f"{int(done.stdout) / MIB:.1f}",
            f"{index / MIB:.1f}", f"{most / MIB:.1f}", "yes" if index <= most else "NO",
        ])  # fmt: skip
    columns = ["observation", "stored, MiB", "limit, MiB", "grew by, MiB", "index, MiB", "predicted at most", "inside"]
    write_section("Lean storage that spills", columns, rows, "python -m bench.spill")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
