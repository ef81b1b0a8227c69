"""Jobs under exactly the limit that `--for` printed: is one of them killed, and how much of the limit is waste?

Runs are made by chance: algorithm, observations, buffers, workers. `legroom predict RUN --for SYSTEM` says what to ask
for, as a user would call it, and `legroom train RUN --plain` runs in a cgroup with that limit, supervisor and all.
Every fourth job is fitted first (`legroom fit --ram`), and trains as fitted. Waste is the share of the limit that the
job's processes never had (PSS, mapped files of libraries in full, since others on this machine share them): page cache
would fill any limit.

    python -m bench.scheduler_limits [JOB...] [--rows FILE]  # a row per job, appended as JSON lines; resumes
    python -m bench.scheduler_limits --report FILE           # the table
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.limits import run_limited
from bench.results import write_section
from legroom.model.run import Run
from legroom.reading import run_from_dict
from legroom.rendering.run_file import run_file
from legroom.units import MIB, format_size

JOBS = 60
MOST_WASTE = 0.12
LONGEST_S = 1500
WIDTH = 256
SHARES = (0.7, 0.85, 1.0)  # of what a run needs, tried in turn where it is to be fitted
SYSTEMS = ("slurm", "kubernetes", "docker", "condor")
LEGROOM = [sys.executable, "-m", "legroom"]
ROOT = Path(__file__).parent.parent
# Past runs of this machine say nothing here: others train on it meanwhile and share its libraries.
ENVIRON = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}


def random_run(number: int, seed: int) -> Run:
    """Return a run that fills its buffer, and updates from it, within a minute: large observations, few of them."""
    rng = random.Random(seed * 1000 + number)
    algo = rng.choice(("PPO", "PPO", "A2C", "MaskablePPO", "DQN", "SAC", "TD3"))
    continuous = algo in ("SAC", "TD3")
    action = {"type": "box", "shape": [4]} if continuous else {"type": "discrete", "n": 6}
    kind = rng.choice(("vector", "dict") if continuous else ("vector", "pixels", "dict"))
    image = {"type": "box", "shape": [rng.choice((160, 200, 240)), WIDTH, rng.choice((1, 3))], "dtype": "uint8"}
    observation: dict[str, Any] = {
        "pixels": image,
        "vector": {"type": "box", "shape": [rng.choice((20_000, 60_000))]},
        "dict": {"type": "dict", "spaces": {"image": image, "state": {"type": "box", "shape": [30]}}},
    }[kind]
    envs, stored = rng.choice((1, 1, 2, 4)), rng.uniform(60e6, 600e6)
    each = 4 * observation["shape"][0] if kind == "vector" else image["shape"][0] * WIDTH * image["shape"][2]
    if algo in ("PPO", "MaskablePPO", "A2C"):
        steps = max(int(stored / each / envs / (1 if kind == "vector" else 4)) // 64 * 64, 64)
        hyperparams: dict[str, Any] = {"n_steps": steps}
        hyperparams |= {} if algo == "A2C" else {"batch_size": rng.choice((32, 64)), "n_epochs": 1}
        total = 2 * steps * envs
    else:
        size = max(int(stored / each / 2), 300)
        hyperparams = {"buffer_size": size, "batch_size": 32, "train_freq": 100, "learning_starts": 200}
        total = int(size * 1.1)
    return run_from_dict({
        "name": f"job{number}-{algo.lower()}-{kind}",
        "algo": algo,
        "env": {
            "id": "bench.envs:FrameEnv",
            "kwargs": {"observation": observation, "action": action, "noise": rng.choice((0.02, 0.2, 1.0))},
            "n_envs": envs,
            "workers": rng.choice(("dummy", "subproc")) if envs > 1 else "dummy",
            "spaces": {"observation": observation, "action": action},
        },
        "policy": {"name": {"pixels": "CnnPolicy", "vector": "MlpPolicy", "dict": "MultiInputPolicy"}[kind]},
        "hyperparams": hyperparams,
        "total_timesteps": total,
        "seed": 0,
        "device": "cpu",
    })  # fmt: skip


def asked(folder: Path, system: str, *, fitted: bool) -> dict[str, Any]:
    """Return what the command says to ask for; a fitted run is written beside the other."""
    if not fitted:
        data = _told(folder, "predict", "run.yaml", "--trust", "--for", system)
        return data["runs"][0]["job"] | {"peak": _peak(data)}
    whole = _told(folder, "predict", "run.yaml", "--mode", "arithmetic")["runs"][0]["host"]["peak"]
    for share in SHARES:  # as a user would: where a run cannot be made to fit, the next larger limit
        budget = str(max(int(whole * share), 480 * MIB))
        data = _told(folder, "fit", "run.yaml", "--ram", budget, "-o", "fitted.yaml", "--trust", "--for", system)
        if data.get("job"):
            return data["job"] | {"peak": _peak(data)}
    raise ValueError(f"does not fit {budget} bytes")


def _told(folder: Path, *words: str) -> dict[str, Any]:
    """Return what a command of ours prints as JSON."""
    told = subprocess.run(
        [*LEGROOM, *words, "--cpu-only", "--json"], capture_output=True, text=True, cwd=folder, env=ENVIRON, check=False
    )
    data: dict[str, Any] = json.loads(told.stdout)
    return data


def _peak(data: dict[str, Any]) -> int | None:
    """Return the middle of the band that the request is from, where the document says it."""
    runs = data.get("runs") or [data.get("prediction") or {}]
    host: dict[str, Any] = runs[0].get("host") or {}
    return host.get("peak")


def measure(number: int, seed: int) -> dict[str, Any]:
    """Return the row of one job."""
    run, system, fitted = random_run(number, seed), SYSTEMS[number % 4], number % 4 == 3
    with tempfile.TemporaryDirectory(prefix="legroom-job-") as name:
        folder = Path(name)
        (folder / "run.yaml").write_text(run_file(run))
        try:
            job = asked(folder, system, fitted=fitted)
        except (ValueError, KeyError, TypeError) as error:
            return {"number": number, "job": run.name, "end": f"no answer: {error!r}"}
        words = ["fitted.yaml"] if fitted else ["run.yaml", "--plain"]
        with (folder / "log").open("wb") as log:
            ended = run_limited(
                [*LEGROOM, "train", *words, "--retries", "0", "--out", str(folder / "out")], job["memory"],
                longest_s=LONGEST_S, stdout=log, stderr=log, cwd=folder, env=ENVIRON,
            )  # fmt: skip
        last = ((folder / "log").read_text(errors="replace").strip().splitlines() or [""])[-1]
    how = "killed by the limit" if ended.killed_by_limit else "ended well"
    if ended.exit_code and not ended.killed_by_limit:
        how = f"exit {ended.exit_code}: {last[:100]}"
    return {
        "number": number, "job": run.name, "for": system, "fitted": fitted, "limit": job["memory"],
        "need": job["need"], "peak": job["peak"], "pss": ended.pss_peak, "full": ended.full_peak,
        "cgroup": ended.cgroup_peak, "held": ended.held_peak, "kernel": ended.kernel_peak, "end": how,
        "seconds": round(ended.seconds),
    }  # fmt: skip


def _lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


def report(file: Path, section: str) -> int:
    """Write the table of all rows so far."""
    rows = [json.loads(line) for line in _lines(file)]
    ran = [row for row in rows if "pss" in row]
    well = [row for row in ran if row["end"] == "ended well"]
    wastes, by_pss = ([1 - row[key] / row["limit"] for row in well] for key in ("full", "pss"))
    table = [
        [
            row["job"], row["for"], "yes" if row["fitted"] else "no", format_size(row["need"]),
            format_size(row["limit"]), format_size(row["full"]), format_size(row["pss"]), format_size(row["kernel"]),
            f"{1 - row['full'] / row['limit']:.1%}", f"{1 - row['pss'] / row['limit']:.1%}", row["end"],
        ]
        for row in ran
    ]  # fmt: skip
    killed = sum("killed" in row["end"] for row in ran)
    summary = f"{len(ran)} jobs: {killed} killed, {len(ran) - killed - len(well)} ended otherwise"
    medians = [f"median {statistics.median(each):.1%}" for each in (wastes, by_pss)]
    table.append([summary, "", "", "", "", "", "", "", *medians, ""])
    columns = ["job", "--for", "fitted", "need", "limit", "peak", "PSS, sampled", "kernel", "waste", "by PSS", "end"]
    write_section(section, columns, table, "make bench-scheduler-limits")
    return 0 if not killed and statistics.median(wastes) <= MOST_WASTE else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("jobs", nargs="*", type=int)
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--rows", type=Path, default=ROOT / "build/scheduler_limits.jsonl")
    parser.add_argument("--report", type=Path)
    parser.add_argument("--section", default="Jobs under the limit that --for printed")
    arguments = parser.parse_args()
    if arguments.report:
        return report(arguments.report, arguments.section)
    arguments.rows.parent.mkdir(exist_ok=True)
    done = [json.loads(line)["number"] for line in _lines(arguments.rows)]
    for number in arguments.jobs or range(JOBS):
        if number in done:
            continue
        row = measure(number, arguments.seed)
        print(json.dumps(row), flush=True)
        with arguments.rows.open("a") as file:
            file.write(json.dumps(row) + "\n")
    return 0 if arguments.jobs else report(arguments.rows, arguments.section)


if __name__ == "__main__":
    sys.exit(main())
