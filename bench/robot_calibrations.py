"""Write the calibrations that the robot ships: what XLA said about its training step, for every setting of it.

Not a measurement of legroom but something it ships, so that `legroom predict robot:default` answers at once on a
machine that has never compiled a robot. To be made anew when a file of the robot changes; a test says when. Other
versions of the libraries widen the band.

    python -m bench.robot_calibrations     # some ten minutes on two cores
"""

import os
import sys
from pathlib import Path

from legroom.backends.brax.calibration import SHIPPED, calibrate, ship_calibration
from legroom.backends.brax.card_plans import ask_for_card
from legroom.device.xla_target import plugin_missing
from legroom.machine.gpu_table import find_gpu
from legroom.reading import read

# one run per set of networks; other networks are estimated from the last
RUNS = ("robot:quick", "robot:default")
# one of every generation; asked where the extra xla-gpu is installed
CARDS = ("RTX 4090", "RTX 3090", "A100", "H100", "T4", "RTX 5090")


def main() -> int:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    folder = Path(__file__).parents[1] / "src/legroom_workloads/robot" / SHIPPED
    folder.mkdir(exist_ok=True)
    cards = [] if plugin_missing() else [find_gpu(name) for name in CARDS]
    for old in folder.glob("*.json"):
        if cards or "@" not in old.name:  # plans for cards are kept where they cannot be made
            old.unlink()
    for name in RUNS:
        run = read(name)
        known = calibrate(run, progress=lambda text: print(text, flush=True), both=True)
        place = ship_calibration(run, known, folder)
        print(name, place)
        for card in cards:
            ask_for_card(run, card, progress=lambda text: print(text, flush=True), both=True, place=place)
    return 0


if __name__ == "__main__":
    sys.exit(main())
