"""The wildfire document's table of configurations, next to what they are predicted to take and what they take here.

GPU memory is predicted for the document's card of 3.68 GiB (traced networks, simulated allocator). Host memory is
predicted for the whole run with its 100,000 transitions, as SB3 does it, and with lean storage and light workers. Then
each is trained for a few updates on this machine's processor, leanly, with little simulation, which takes no memory;
measured is the most that all its processes had at once (PSS), and beside it stands what was predicted for exactly that.

    nice python -m bench.fire_table [--to FILE]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.results import RESULTS, write_section
from legroom.backends.base import hyper
from legroom.backends.sb3.judging import architecture
from legroom.model.run import Run
from legroom.reading import read

CARD = "3.68GiB"
# configuration: batch, environments, GPU memory, as the document has them
DOCUMENT = {"original": (64, 32, "~4.5 GB"), "medium": (32, 16, "~2.8 GB"), "low": (16, 8, "~1.5 GB")}
COLLECTED, UPDATES = 10, 3  # steps of all environments before the first update, and updates
LEAN = ("--set", "memory.replay=lean", "--set", "env.workers=light")
WITHIN = 0.15  # of the measured peak
MIB, GIB = 2**20, 2**30
COLUMNS = [
    "run", "batch", "envs", "model", "GPU, document", f"GPU predicted, {CARD}", "fits", "host predicted, SB3",
    "host predicted, lean", "short training predicted", "measured", "verdict",
]  # fmt: skip


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="The wildfire document's table, predicted and measured.")
    parser.add_argument("--to", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    rows = [row_of(name) for name in DOCUMENT]
    command = "python -m bench.fire_table"
    write_section("Wildfire: the document's configurations", COLUMNS, rows, command, folder=options.to)
    return int(any(row[-1] == "MISSED" for row in rows))


def row_of(name: str) -> list[object]:
    """Return a configuration's row."""
    run = read(f"fire:{name}")
    batch, envs, claimed = DOCUMENT[name]
    assert (hyper(run, "batch_size"), run.env.n_envs) == (batch, envs)
    card = predicted(run.name, "--vram", CARD)
    lean = predicted(run.name, "--device", "cpu", "--probe", *LEAN)
    outcome = trained(run)
    peak = outcome["peaks"]["host"]
    close = abs(peak["predicted"] / peak["measured"] - 1) <= WITHIN
    pieces = f" (in pieces of {run.memory.micro_batch})" if run.memory.micro_batch else ""
    fits = card["gpu"]["band"][1] <= float(CARD.removesuffix("GiB")) * GIB
    return [
        run.name, f"{batch}{pieces}", envs, architecture(run), claimed, _size(card["gpu"]["peak"]),
        "yes" if fits else "no", _size(card["host"]["peak"]), _size(lean["host"]["peak"]), _size(peak["predicted"]),
        _size(peak["measured"]), "ok" if close else "MISSED",
    ]  # fmt: skip


def predicted(*arguments: str) -> dict[str, Any]:
    """Return what `legroom predict` says of one run."""
    command = [sys.executable, "-c", "from legroom.cli.main import main; main()", "predict", *arguments, "--json"]
    said = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False).stdout  # 1: does not fit
    return json.loads(said)["runs"][0]


def trained(run: Run) -> dict[str, Any]:
    """Train for a few updates and return the outcome."""
    steps = {"hyperparams.learning_starts": COLLECTED * run.env.n_envs, "env.kwargs.sims": 1}
    settings = [part for key, value in steps.items() for part in ("--set", f"{key}={value}")]
    total = (COLLECTED + UPDATES) * run.env.n_envs
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [sys.executable, "-c", "from legroom.cli.main import main; main()", "train", run.name, "--device", "cpu",
             "--timesteps", str(total), "--seed", "0", "--rasters", "50", *settings, *LEAN, "--out", folder, "--json"],
            check=True, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        return json.loads((Path(folder) / "outcome.json").read_text())


def _size(nbytes: float) -> str:
    return f"{nbytes / GIB:.2f} GiB" if nbytes >= GIB else f"{nbytes / MIB:.0f} MiB"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
