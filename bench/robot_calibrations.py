"""Write the calibrations that the robot ships: what XLA said about its training step, for every setting of it.

Not a measurement of legroom but something it ships, so that `legroom predict robot:default` answers at once on a
machine that has never compiled a robot. To be made anew when a file of the robot changes; a test says when. Other
versions of the libraries widen the band.

    python -m bench.robot_calibrations           # some ten minutes on two cores, and twenty for the cards
    python -m bench.robot_calibrations cards     # the plans for cards alone, in an environment with the extra xla-gpu
    python -m bench.robot_calibrations cards robot:quick
"""

import os
import sys
from pathlib import Path

from legroom.backends.brax.asking import ask_for_plan, calibrate
from legroom.backends.brax.calibration import SHIPPED, calibration_places, plan_file, read_plan, save_calibration
from legroom.machine.cache import write_json
from legroom.machine.gpu_table import find_gpu
from legroom.reading import read
from legroom.xla.target import plugin_missing

# one run per set of networks; other networks are estimated from the last
RUNS = ("robot:quick", "robot:default")
# one of every generation; asked where the extra xla-gpu is installed
CARDS = ("RTX 4090", "RTX 3090", "A100", "H100", "T4", "RTX 5090")


def tell(text: str) -> None:
    print(text, flush=True)


def main() -> int:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    folder = Path(__file__).parents[1] / "src/legroom_workloads/robot" / SHIPPED
    folder.mkdir(exist_ok=True)
    cards, cards_alone = [] if plugin_missing() else [find_gpu(name) for name in CARDS], "cards" in sys.argv
    runs = [name for name in RUNS if name in sys.argv] or [*RUNS]
    current = {calibration_places(read(name))[1].stem for name in RUNS}
    for old in folder.glob("brax-*.json"):  # of files of the robot that have changed since
        if old.stem.partition("@")[0] not in current and not (cards_alone and old.stem.startswith("brax-env-")):
            old.unlink()
    if not cards_alone:
        for name in runs:
            known = calibrate(read(name), progress=tell)
            shipped = save_calibration(read(name), known, folder)
            plan = next(filter(None, map(read_plan, calibration_places(read(name)))))
            write_json(plan_file(shipped, ""), plan.model_dump())
            print(name, shipped)
    for name in reversed(runs):
        shipped = calibration_places(read(name))[1]
        for card in cards:
            print(name, card.name, flush=True)
            plan_file(shipped, card.name).unlink(missing_ok=True)
            ask_for_plan(read(name), card, progress=tell, place=shipped)
    return 0


if __name__ == "__main__":
    sys.exit(main())
