"""The mine's deposit, from file to pit: how long it takes, how exact it is, and how good the simple schedules are.

Times are processor seconds, since a machine that trains has other things to do; the median of three. How exact the pit
is tells the distance between its value and the bound that the flow proves. A schedule's NPV is compared with the bound
of `legroom_workloads.mine.nested`, which no schedule can exceed; the pit is dug out in 20 years.

    python -m bench.mine_pit
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np

from bench.results import write_section
from legroom_workloads.mine.csv_file import read_csv, write_csv
from legroom_workloads.mine.deposit import sample
from legroom_workloads.mine.economics import Economics, block_values
from legroom_workloads.mine.greedy import best_greedy
from legroom_workloads.mine.models import load_model
from legroom_workloads.mine.nested import nested_pits, npv_bound
from legroom_workloads.mine.pit import grid_precedence, solve_closure, ultimate_pit

GRIDS = ((49, 71, 58), (50, 50, 30), (20, 20, 10), (10, 10, 5))
READ_REQUIRED_S, GREEDY_REQUIRED_S, GAP_REQUIRED_USD = 2.0, 120.0, 1.0
YEARS = 20
REPETITIONS = 3

Result = TypeVar("Result")


def main() -> int:
    """Measure, write the sections, and return 1 if something is not as required."""
    model, generate_s = _timed(sample)
    with tempfile.TemporaryDirectory(prefix="legroom-bench-") as folder:
        path = Path(folder) / "sample.csv"
        write_csv(model, path)
        again, read_s = _timed(lambda: read_csv(path))
    values, _ = block_values(model)
    pit, pit_s = _timed(lambda: ultimate_pit(values))
    proof = solve_closure(values.ravel(), grid_precedence(values.shape))
    gap = proof.bound - proof.value
    same = np.array_equal(again.channels, model.channels) and np.array_equal(proof.inside.reshape(pit.shape), pit)
    schedules = [_scheduled(grid) for grid in GRIDS]
    greedy_s = max(row[-1] for row in schedules)
    write_section(
        "The mine's deposit: 201,782 blocks",
        ["figure", "required", "measured"],
        [
            ["generate the sample", "", f"{generate_s:.2f} s"],
            ["read it from CSV, bit for bit", f"< {READ_REQUIRED_S:.0f} s", f"{read_s:.2f} s"],
            ["ultimate pit", "", f"{pit_s:.1f} s"],
            ["value of the pit", "", f"{proof.value:,.0f} $"],
            ["proven to be optimal to", f"< {GAP_REQUIRED_USD:.0f} $", f"{gap:.2f} $"],
            ["best of all greedy schedules", f"< {GREEDY_REQUIRED_S:.0f} s", f"{greedy_s:.1f} s"],
        ],
        "python -m bench.mine_pit",
    )
    write_section(
        "The mine's simple schedules, against what no schedule can exceed",
        ["grid", "pit, blocks", "of all", "waste", "pit, M$", "greedy NPV, M$", "rule", "bound, M$", "greedy / bound"],
        [row[:-1] for row in schedules],
        "python -m bench.mine_pit",
    )
    good = same and read_s < READ_REQUIRED_S and gap < GAP_REQUIRED_USD and greedy_s < GREEDY_REQUIRED_S
    return 0 if good else 1


def _scheduled(grid: tuple[int, int, int]) -> list:
    """Return a row of the table of schedules, and at its end the processor seconds of the schedules."""
    ground = load_model("sample", grid)
    values, _ = block_values(ground)
    pit = ultimate_pit(values, ground.size_m)
    count = int(pit.sum())
    factors = Economics().discount_factors(count, YEARS * 365 / count)
    (npv, _, rule), seconds = _timed(lambda: best_greedy(values, pit, factors, size_m=ground.size_m), repetitions=1)
    bound = npv_bound(nested_pits(values, pit, size_m=ground.size_m), factors)
    millions = (f"{figure / 1e6:,.0f}" for figure in (values[pit].sum(), npv, bound))
    worth, best, most = millions
    waste = f"{(values[pit] < 0).mean():.0%}"
    name = "×".join(map(str, grid))
    return [name, f"{count:,}", f"{pit.mean():.1%}", waste, worth, best, rule, most, f"{npv / bound:.2f}", seconds]


def _timed(work: Callable[[], Result], repetitions: int = REPETITIONS) -> tuple[Result, float]:
    """Return what `work` returns and the median of its processor seconds."""
    seconds = []
    for _ in range(repetitions):
        begin = time.process_time()
        result = work()
        seconds.append(time.process_time() - begin)
    return result, statistics.median(seconds)


if __name__ == "__main__":
    sys.exit(main())
