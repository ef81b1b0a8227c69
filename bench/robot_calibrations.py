"""Write the calibrations that the robot ships: what XLA said about its training step, for every setting of it.

Not a measurement of legroom but something it ships, so that `legroom predict robot:default` answers at once on a
machine that has never compiled a robot. To be made anew when a file of the robot changes; a test says when. Other
versions of the libraries widen the band. `predict` asks XLA about two sizes; what is shipped is solved from eight, by
least squares, and within 3 % of XLA's own plans (`bench/xla.py`).

    python -m bench.robot_calibrations           # some ten minutes on two cores, and twenty for the cards
    python -m bench.robot_calibrations robot:quick
"""

import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from legroom.backends.brax.asking import ask_compiler, ask_for_plan
from legroom.backends.brax.calibration import find_calibration, shipped_file
from legroom.backends.brax.plans import Sizes, with_sizes
from legroom.machine.cache import write_json
from legroom.machine.gpu_table import KnownGpu, find_gpu
from legroom.reading import read
from legroom.xla.target import plugin_missing, target_text

# one run per set of networks; other networks are estimated from the largest
RUNS = ("robot:default", "robot:quick")
# one of every generation; asked where the extra xla-gpu is installed
CARDS = ("RTX 4090", "RTX 3090", "A100", "H100", "T4", "RTX 5090")
# The terms of each moment, and as many sizes for which no other moment is fuller.
MOMENTS: Mapping[tuple[str, ...], tuple[Sizes, ...]] = {
    ("1", "BU", "W", "BMU"): (
        Sizes(32, 256, 8, 10), Sizes(32, 256, 4, 10), Sizes(32, 1024, 4, 10), Sizes(32, 64, 8, 10),
    ),
    ("1", "N", "S"): (Sizes(8192, 256, 32, 2), Sizes(2048, 64, 32, 2), Sizes(8192, 256, 32, 6)),
    ("1",): (Sizes(32, 64, 2, 2),),
}  # fmt: skip


def tell(text: str) -> None:
    print(text, flush=True)


def moments_of(name: str, card: KnownGpu | None) -> list[dict[str, float]]:
    """Return the coefficients of the terms of each moment."""
    target: Any = {} if card is None else {"target": target_text(card), "card": card.name}
    found = []
    for terms, asked in MOMENTS.items():
        runs = [with_sizes(read(name), sizes) for sizes in asked]
        real = [ask_compiler("plan", run, progress=tell, evaluation=False, **target)["temporaries"] for run in runs]
        rows = [[sizes.value(term) for term in terms] for sizes in asked]
        solution = np.linalg.lstsq(np.array(rows, float), np.array(real, float))[0]
        # less per sample of a small minibatch than of a large one is possible
        found.append({t: float(x) if t == "W" else max(float(x), 0.0) for t, x in zip(terms, solution, strict=True)})
    return found


def main() -> int:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    cards = [None, *([] if plugin_missing() else [find_gpu(name) for name in CARDS])]
    for name in [name for name in RUNS if name in sys.argv] or RUNS:
        run, plans = read(name), {}
        for card in cards:
            print(name, card.name if card else "CPU", flush=True)
            plan = ask_for_plan(run, card, progress=tell)
            plans[plan.card] = replace(plan, moments=moments_of(name, card))
        known, file = find_calibration(run), shipped_file(run)
        assert known is not None and file is not None
        write_json(file, replace(known, plans=plans).model_dump())
        print(name, file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
