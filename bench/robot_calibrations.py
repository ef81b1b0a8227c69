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
from legroom.reading import read

# one run per set of networks; other networks are estimated from the last
RUNS = ("robot:quick", "robot:default")


def main() -> int:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    folder = Path(__file__).parents[1] / "src/legroom_workloads/robot" / SHIPPED
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.json"):
        old.unlink()
    for name in RUNS:
        run = read(name)
        known = calibrate(run, progress=lambda text: print(text, flush=True), both=True)
        print(name, ship_calibration(run, known, folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
