"""`legroom train --fit` inside a hard limit of 60, 40 and 30 % of what the run needs as written; and plain SB3 there.

Three runs whose removable part (buffers, copies, workers) is at least 85 % of the need: the mine on a mid-size grid,
PPO and DQN on pixels. The whole command is inside the limit, predictions and supervisor included. The same run by a
plain SB3 script dies in the most generous of the limits.

    python -m bench.hard_limits [NAME...]
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.limits import run_limited
from bench.results import write_section
from legroom.machine.probing import probe
from legroom.model.machine import Machine
from legroom.predicting.predict import predict
from legroom.reading import run_from_dict
from legroom.rendering.run_file import run_file
from legroom.units import format_size

SHARES = (0.6, 0.4, 0.3)
REMOVABLE = 0.85
LONGEST_S = 1500
ROOT = Path(__file__).parent.parent
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
BASE_NBYTES = 330_000_000  # what no run can do without: the interpreter and its libraries
GRID = (24, 34, 28)
PIXELS = {"type": "box", "shape": [84, 84, 1], "dtype": "uint8"}


def _frames(**more: Any) -> dict[str, Any]:
    action = {"type": "discrete", "n": 6}
    return {
        "id": "bench.fit_envs:FrameEnv",
        "kwargs": {"observation": PIXELS, "action": action, "noise": 0.05},
        "spaces": {"observation": PIXELS, "action": action},
        "frame_stack": 4,
        **more,
    }


RUNS: dict[str, dict[str, Any]] = {
    "mine, 24×34×28": {
        "algo": "MaskablePPO", "total_timesteps": 2048, "seed": 1, "device": "cpu",
        "env": {
            "id": "legroom_workloads.mine:MineEnv", "kwargs": {"model": "sample"}, "n_envs": 4, "workers": "subproc",
            "grid": list(GRID),
            "spaces": {
                "observation": {"type": "box", "shape": [17, *GRID], "dtype": "float32"},
                "action": {"type": "discrete", "n": GRID[0] * GRID[1]},
            },
        },
        "policy": {
            "name": "CnnPolicy", "kwargs": {"net_arch": [64], "normalize_images": False},
            "features_extractor": "legroom_workloads.mine:Cnn3d", "features_extractor_kwargs": {"size": "tiny"},
        },
        "hyperparams": {"n_steps": 256, "batch_size": 32, "n_epochs": 1},
    },
    "PPO, pixels": {
        "algo": "PPO", "total_timesteps": 81_920, "seed": 1, "device": "cpu",
        "env": _frames(n_envs=8, workers="dummy"),
        "policy": {"name": "CnnPolicy"}, "hyperparams": {"n_steps": 5120, "batch_size": 256, "n_epochs": 1},
    },
    "DQN, pixels": {
        "algo": "DQN", "total_timesteps": 60_000, "seed": 1, "device": "cpu",
        "env": _frames(n_envs=4, workers="dummy"),
        "policy": {"name": "CnnPolicy"},
        "hyperparams": {
            "buffer_size": 50_000, "batch_size": 32, "learning_starts": 1000, "train_freq": 50, "gradient_steps": 1,
        },
    },
}  # fmt: skip


def main() -> int:
    names = sys.argv[1:] or list(RUNS)
    machine, rows, good = probe(), [], 0
    for name in names:
        made = _rows(name, machine)
        rows += made
        good += sum(row[-1] == "yes" for row in made)
    columns = ["run", "needs", "limit", "by", "end", "PSS peak", "cgroup peak", "knobs", "seconds", "as required"]
    wanted = len(names) * (len(SHARES) + 1)
    print(f"required: {wanted}, as required: {good}")
    if len(names) == len(RUNS):
        write_section("Hard limits: train --fit, and plain SB3", columns, rows, "make bench-hard-limits")
    return 0 if good == wanted else 1


def _rows(name: str, machine: Machine) -> list[list[str]]:
    run = run_from_dict(RUNS[name])
    need = predict(run, machine, mode="arithmetic", device="cpu").host.nbytes
    assert need - BASE_NBYTES >= REMOVABLE * need, f"{name}: {need:,} bytes, not enough of it removable"
    rows = [_plain(name, need)]
    print(" | ".join(rows[-1]), flush=True)
    for share in SHARES:
        rows.append(_fitted(name, need, share))
        print(" | ".join(rows[-1]), flush=True)
    return rows


def _fitted(name: str, need: int, share: float) -> list[str]:
    limit = int(need * share)
    with tempfile.TemporaryDirectory(prefix="legroom-hard-") as folder:
        path, out = Path(folder, "run.yaml"), Path(folder, "out")
        path.write_text(run_file(run_from_dict(RUNS[name])))
        command = [sys.executable, "-m", "legroom.cli.main", "train", str(path), "--fit", "--ram", str(limit)]
        with Path(folder, "log").open("wb") as log:
            ended = run_limited(
                [*command, "--out", str(out)], limit, longest_s=LONGEST_S, cwd=ROOT, env=ENVIRONMENT, stdout=log,
                stderr=log,
            )  # fmt: skip
        written = out / "outcome.json"
        outcome = json.loads(written.read_text()) if written.exists() else {}
        last = Path(folder, "log").read_text(errors="replace").strip().splitlines()[-1:]
    finished = ended.exit_code == 0 and outcome.get("status") == "finished"
    knobs = outcome.get("attempts", [{}])[-1].get("knobs", {})
    how = f"finished, {len(outcome.get('retreats', []))} retreats" if finished else f"{ended.exit_code}: {last}"
    return _row(name, need, share, "legroom train --fit", how, ended, ", ".join(knobs), finished)


def _plain(name: str, need: int) -> list[str]:
    """Train it as a script of its own would, SB3 alone, in the most generous limit."""
    limit = int(need * SHARES[0])
    ended = run_limited(
        [sys.executable, "-m", "bench.hard_limits_plain", json.dumps(RUNS[name])],
        limit,
        longest_s=LONGEST_S,
        cwd=ROOT,
        env=ENVIRONMENT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    died = ended.exit_code != 0
    how = "killed by the limit" if ended.killed_by_limit else f"exit code {ended.exit_code}"
    return _row(name, need, SHARES[0], "plain SB3", how, ended, "", died)


def _row(name: str, need: int, share: float, by: str, how: str, ended: Any, knobs: str, good: bool) -> list[str]:
    return [
        name, format_size(need), f"{share:.0%}: {format_size(need * share)}", by, how, format_size(ended.pss_peak),
        "-" if ended.cgroup_peak is None else format_size(ended.cgroup_peak), knobs or "-", f"{ended.seconds:.0f}",
        "yes" if good else "NO",
    ]  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
