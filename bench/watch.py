"""What `legroom watch` costs, and how well it foretells the end of a leaking command.

    python -m bench.watch [--quick]

Cost: processor time of watch itself, its start and its report included, against that of the command, for a trainer
alone and with 16 workers (forked and spawned), over a minute of the command's processor time. watch's own is what the
kernel counted for it and the command together, less what the command counted for itself.

Forecast: scripts that leak in several shapes, with `--limit` as the line where they die, and once inside a container
(cgroup) with a hard limit. Of each, the forecast made when half of the memory was used (the first that was certain from
there on) is compared with the moment at which the line was reached: as a share of that moment, which is the required
figure, and as a share of the time that was left, which is the harder one.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.limits import cgroup
from bench.results import write_section

COMMAND = "python -m bench.watch"
LEGROOM = [sys.executable, "-c", "from legroom.cli.main import main; main()"]
MOST_COST, MOST_ERROR = 0.02, 0.15
MIB = 1 << 20

WORK = """
import json, multiprocessing, os, sys, time
def work(cpu_s, own):
    kept = bytearray(own << 20)
    while time.process_time() < cpu_s:
        for i in range(0, len(kept), 4096):
            kept[i] = (kept[i] + 1) & 255
        rollout = bytearray(8 << 20)
        for i in range(0, len(rollout), 4096):
            rollout[i] = 1
        sum(i * i for i in range(100_000))
if __name__ == "__main__":
    seconds, workers, how, told = float(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
    import numpy, gymnasium
    each = seconds / (workers + 1)
    context = multiprocessing.get_context(how)
    crew = [context.Process(target=work, args=(each, 10)) for _ in range(workers)]
    for one in crew:
        one.start()
    work(each, 200)
    for one in crew:
        one.join()
    used = os.times()
    open(told, "w").write(str(used.user + used.system + used.children_user + used.children_system))
"""
LEAK = """
import random, sys, time
shape, rate, seconds = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
def touched(mib):
    block = bytearray(int(mib * (1 << 20)))
    block[::4096] = bytes([1]) * len(range(0, len(block), 4096))
    return block
random.seed(7)
kept, rollout, began, given = [touched(30)], [], time.time(), 0.0
while (now := time.time() - began) < seconds:
    due = rate * now
    if shape.startswith("step"):
        due = rate * 1.5 * int(now / 1.5)
    if shape.startswith("late"):
        due = rate * max(now - 6, 0)
    if due - given >= 0.25:
        kept.append(touched(due - given)); given = due
    if "saw" in shape:
        rollout = rollout + [touched(2)] if len(rollout) < 15 else []
    if "noise" in shape:
        rollout = [touched(random.uniform(1, 12))]
    time.sleep(0.03)
"""


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Cost and forecasts of legroom watch.")
    parser.add_argument("--quick", action="store_true", help="shorter, to try; writes no results")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="legroom-bench-watch-") as folder:
        rows = [*_costs(Path(folder), options.quick), *_forecasts(Path(folder), options.quick)]
        target = {"folder": Path(folder)} if options.quick else {}
        write_section("Watching", ["figure", "required", "measured", "detail", "verdict"], rows, COMMAND, **target)
    return 0 if all(row[-1] == "ok" for row in rows) else 1


def _costs(folder: Path, quick: bool) -> list[list[str]]:
    script = folder / "work.py"
    script.write_text(WORK)
    rows = []
    for workers, how in ((0, "fork"), (16, "fork"), (16, "spawn")):
        shares = []
        for _ in range(1 if quick else 2):
            told = folder / "cpu"
            command = [sys.executable, str(script), "20" if quick else "60", str(workers), how, str(told)]
            _, used = _run([*LEGROOM, "watch", "--out", str(folder / "out"), "--", *command])
            cpu = float(told.read_text())
            shares.append((used - cpu) / cpu)
        share = statistics.median(shares)
        name = "1 process" if not workers else f"{workers + 1} processes ({how})"
        many = len(json.loads((folder / "out/watch.json").read_text())["samples"])
        rows.append([f"own processor time, {name}", f"≤ {MOST_COST:.0%} of the command's", f"{share:.2%}",
                     f"{command[2]} s of work, {many} samples", "ok" if share <= MOST_COST else "MISSED"])  # fmt: skip
    return rows


def _forecasts(folder: Path, quick: bool) -> list[list[str]]:
    script = folder / "leak.py"
    script.write_text(LEAK)
    shapes = ("linear", "step", "linear+saw", "linear+noise", "late+saw", "late+noise")
    rows = [_forecast_row(shape, script, folder, inside=False) for shape in (shapes[:2] if quick else shapes)]
    rows.append(_forecast_row("linear+saw", script, folder, inside=True))
    return rows


def _forecast_row(shape: str, script: Path, folder: Path, *, inside: bool) -> list[str]:
    """Watch one leak to its death line and compare."""
    limit, rate = (300, 8.0) if not inside else (400, 10.0)
    command = [sys.executable, str(script), shape, str(rate), "120" if inside else str(limit / rate + 4)]
    if inside:
        with cgroup(limit * MIB) as group:
            if group is None:
                return [f"death in a container, {shape}", "", "not measured", "no cgroup can be made here", "ok"]
            prefix = ["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh"]
            code, _ = _run([*prefix, *LEGROOM, "watch", "--out", str(folder / "out"), "--", *command])
    else:
        code, _ = _run([*LEGROOM, "watch", "--limit", f"{limit}M", "--out", str(folder / "out"), "--", *command])
    told = json.loads((folder / "out/watch.json").read_text())
    samples, line = told["samples"], limit * MIB
    death = told["seconds"] if inside else next((s["t"] for s in samples if s["host"] >= line), None)
    half = next((s["t"] for s in samples if s["host"] >= line / 2), None)
    name = f"forecast at half of the memory, {shape}{' in a cgroup' if inside else ''}"
    said = [one for one in told["forecasts"] if half is not None and one["certain"] and one["made"] >= half - 1]
    if death is None or not said:
        return [name, f"≤ {MOST_ERROR:.0%}", "none", f"death at {death}, half at {half}", "MISSED"]
    first = said[0]
    error = abs(first["reaches"] - death) / death
    of_left = abs(first["reaches"] - death) / (death - first["made"])
    detail = (
        f"said at {first['made']:.0f} s: {first['reaches']:.1f} s, was {death:.1f} s; {of_left:.0%} of the time left"
    )
    if inside:
        detail += f"; exit code {code}, cause {told['cause']}"
    return [name, f"≤ {MOST_ERROR:.0%}", f"{error:.1%}", detail, "ok" if error <= MOST_ERROR else "MISSED"]


def _run(command: Sequence[str]) -> tuple[int, float]:
    """Run a command; return its exit code and the processor time of it and all it waited for."""
    environment: dict[str, Any] = {**os.environ, "OMP_NUM_THREADS": "1"}
    with open(os.devnull, "wb") as nowhere:  # noqa: PTH123
        actions = [(os.POSIX_SPAWN_DUP2, nowhere.fileno(), 1), (os.POSIX_SPAWN_DUP2, nowhere.fileno(), 2)]
        pid = os.posix_spawnp(command[0], list(command), environment, file_actions=actions)
        _, status, usage = os.wait4(pid, 0)
    return os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    began = time.perf_counter()
    code = main(sys.argv[1:])
    print(f"{(time.perf_counter() - began) / 60:.1f} minutes")
    sys.exit(code)
