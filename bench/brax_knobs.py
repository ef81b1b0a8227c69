"""What stepping robots in chunks and remat of the loss save, predicted from a calibration without them.

The temporaries of a training step with the knob turned, as XLA itself plans them, beside what is estimated before
anybody has compiled it so (`backends/brax/calibration.py`), and beside the step without the knob.

    python -m bench.brax_knobs      # some five minutes on two cores
"""

import os
import sys

from bench.brax_memory import MB, with_setting
from bench.results import write_section
from legroom.backends.brax.asking import ask_compiler
from legroom.backends.brax.calibration import known_of
from legroom.backends.brax.items import SCALED_ERROR
from legroom.backends.brax.plans import Sizes, sizes_of
from legroom.fitting.changes import with_settings
from legroom.reading import read

MANY, LONG = Sizes(8192, 2048, 4, 2), Sizes(512, 2048, 2, 16)
CASES = (
    (MANY, {"env_chunk": 1024}),
    (MANY, {"env_chunk": 128}),
    (LONG, {"activation_checkpointing": True}),
    (LONG, {"env_chunk": 64}),
)


def main() -> int:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    rows, worst = [], 0.0
    for sizes, memory in CASES:
        plain = with_setting(read("robot:default"), sizes)
        leaner = with_settings(plain, memory=memory)
        known, before = known_of(leaner), known_of(plain)
        assert known is not None and before is not None
        predicted, without = (sum(each.temporaries(sizes_of(plain)).values()) for each in (known, before))
        real = ask_compiler("compile", leaner, evaluation=False)["temporaries"]
        error = predicted / real - 1
        worst = max(worst, abs(error))
        settings = f"{sizes.envs:,} envs, {sizes.batch:,} × {sizes.minibatches}, unroll {sizes.unroll}"
        knob = ", ".join(f"{name} {value}" for name, value in memory.items())
        rows.append(
            [settings, knob, f"{without / MB:,.0f}", f"{predicted / MB:,.0f}", f"{real / MB:,.0f}", f"{error:+.1%}"]
        )
        print(*rows[-1], sep="  ", flush=True)
    rows.append([f"the band allows ± {SCALED_ERROR:.0%}", "", "", "", "", f"worst {worst:.1%}"])
    columns = ["robot, temporaries (MB)", "knob", "without", "predicted", "XLA's own", "error"]
    write_section("brax: knobs of the training step", columns, rows, "python -m bench.brax_knobs")
    return 0 if worst <= SCALED_ERROR else 1


if __name__ == "__main__":
    sys.exit(main())
