"""Memory of brax runs, predicted from one calibration, against what they take: running, compiling, and compiling.

Two items, two figures, since a constant would pass a single one: (a) how much a training step makes its process grow,
the high-water mark reset after compiling, at settings where that is 200 MB or more; (b) the host's peak while tracing
and compiling. Both are predicted from a calibration made at another setting (`robot:quick` with 64 robots); beside it
stands how far that is from the compiler's own analysis of each setting.

    python -m bench.brax_memory                    # some 20 minutes on two cores
    python -m bench.brax_memory --keep FILE.json   # keeps what was measured, and goes on from there when repeated
    python -m bench.brax_memory --few              # three settings, written nowhere
"""

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench.results import write_section
from legroom.backends.brax.asking import ask_for_plan
from legroom.backends.brax.calibration import known_of
from legroom.backends.brax.plans import Sizes, sizes_of
from legroom.fitting.changes import with_settings
from legroom.model.footprint import Footprint
from legroom.model.machine import Machine
from legroom.model.run import Run
from legroom.predicting.predict import predict
from legroom.reading import read
from legroom.units import GIB

MB = 1e6
MACHINE = Machine(ram=64 * GIB, limit=None, available=64 * GIB, swap=0, shm=32 * GIB, cores=2)
LEAST_GROWTH = 200 * MB
MEDIAN, WORST, HOST = 0.10, 0.20, 0.15
# num_envs, batch_size, num_minibatches, unroll_length: many robots, large minibatches, long unrolls, and in between;
# one unroll of every robot per rollout, or several
SETTINGS = (
    Sizes(16_384, 4096, 4, 1), Sizes(24_576, 6144, 4, 1), Sizes(1024, 2048, 2, 12), Sizes(256, 4096, 2, 8),
    Sizes(2048, 2048, 2, 16), Sizes(4096, 4096, 1, 6), Sizes(128, 1024, 2, 30), Sizes(640, 1280, 2, 20),
    Sizes(512, 512, 8, 48), Sizes(8192, 8192, 2, 2),
)  # fmt: skip
FEW = (SETTINGS[0], SETTINGS[3], SETTINGS[5])
CALIBRATED_AT = Sizes(64, 32, 4, 10)
COMMAND = "python -m bench.brax_memory"


def with_setting(run: Run, sizes: Sizes) -> Run:
    """Return the run with these sizes."""
    more = {"batch_size": sizes.batch, "num_minibatches": sizes.minibatches, "unroll_length": sizes.unroll}
    return with_settings(with_settings(run, hyperparams=more), env={"n_envs": sizes.envs})


def measured(run: Run, keep: Path | None) -> dict[str, Any]:
    """Return what a process says that compiles the setting and runs one training step of it."""
    task = json.dumps({"run": run.model_dump(), "execute": True})
    kept: dict[str, Any] = json.loads(keep.read_bytes()) if keep is not None and keep.exists() else {}
    if task in kept:
        return kept[task]
    command = [sys.executable, "-m", "bench.brax_memory_child", task]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    kept[task] = json.loads(done.stdout.splitlines()[-1])
    if keep is not None:
        keep.write_text(json.dumps(kept))
    return kept[task]


def growth(footprint: Footprint) -> int:
    """Return what the bill says a training step adds to a process that has compiled it."""
    not_running = ("runtime.import, trace, compile", "runtime.compiled")
    evaluation = ("envs.evaluation states", "envs.evaluation temporaries")
    return sum(item.total for item in footprint.items if item.name not in (*not_running, *evaluation))


def memory_rows(
    run: Run, settings: tuple[Sizes, ...], keep: Path | None
) -> tuple[list[list[str]], list[float], list[float]]:
    """Return a row per setting, the errors of (a) where it counts, and those of (b)."""
    known = known_of(run)
    assert known is not None
    rows, running, compiling = [], [], []
    for sizes in settings:
        one = with_setting(run, sizes)
        bill = predict(one, MACHINE, mode="arithmetic", device="cpu")
        real = measured(one, keep)
        temporaries = known.plan.nbytes(sizes_of(one))
        error, host = growth(bill) / real["growth"] - 1, known.calibration.all_compiled_nbytes / real["compiled"] - 1
        counts = real["growth"] >= LEAST_GROWTH
        running += [abs(error)] if counts else []
        compiling.append(abs(host))
        rows.append([
            f"{sizes.envs:,} envs, {sizes.batch:,} × {sizes.minibatches}, unroll {sizes.unroll}",
            f"{growth(bill) / MB:,.0f}", f"{real['growth'] / MB:,.0f}",
            f"{error:+.1%}" + ("" if counts else " (small)"),
            f"{temporaries / real['temporaries'] - 1:+.2%}", f"{known.calibration.all_compiled_nbytes / MB:,.0f}",
            f"{real['compiled'] / MB:,.0f}", f"{host:+.1%}", f"{real['compile_s']:.0f} s", f"{real['execute_s']:.0f} s",
        ])  # fmt: skip
        print(*rows[-1], sep="  ", flush=True)
    return rows, running, compiling


def main() -> int:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    base = with_setting(read("robot:quick"), CALIBRATED_AT)
    ask_for_plan(base, progress=lambda text: print(text, flush=True))
    few = "--few" in sys.argv
    keep = Path(sys.argv[sys.argv.index("--keep") + 1]) if "--keep" in sys.argv else None
    rows, running, compiling = memory_rows(base, FEW if few else SETTINGS, keep)
    median, worst, host = statistics.median(running), max(running), max(compiling)
    rows.append([
        f"required: median ≤ {MEDIAN:.0%}, worst ≤ {WORST:.0%} (a); ≤ {HOST:.0%} (b)", "", "",
        f"median {median:.1%}, worst {worst:.1%} of {len(running)}", "", "", "", f"worst {host:.1%}", "", "",
    ])  # fmt: skip
    columns = [
        "robot (MB)", "growth predicted", "growth real", "error (a)", "plan vs. compiler", "compiling predicted",
        "compiling real", "error (b)", "compiled in", "ran in",
    ]  # fmt: skip
    if few:
        return 0 if median <= MEDIAN and worst <= WORST and host <= HOST else 1
    write_section("brax: memory of running and of compiling", columns, rows, COMMAND)
    good = median <= MEDIAN and worst <= WORST and host <= HOST
    return 0 if good and len(running) >= 8 else 1


if __name__ == "__main__":
    sys.exit(main())
