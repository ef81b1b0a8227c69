"""Public programs, unedited, on a card that is not there: rehearsed peaks against the real caching allocator's.

The truth was recorded with the CUDA build of torch on a device that executes no kernels and counts memory as a card
does (context, cuDNN's workspace and its RNN reserve excepted). The programs themselves are not in this repository:
`bench/data/programs.json` says of which repository each is, with its arguments and truth; FOLDER holds their sources
and an environment to run them in, at the places that the file names. One half was set aside before anything was
rehearsed and is reported apart; so are short scripts of our own that drive a library which has no program to run, and
a program whose sizes depend on values, which are zeros on that device.

`heldout2` to `heldout5` and `oom-heldout2` are programs of other repositories, chosen when the ones before were known;
of those that would not end in a while the truth is that of the first `steps_recorded` optimizer steps. Four truths of
`heldout5` had ended before the program's evaluation, whose memory the rehearsal then found; they were recorded again,
past it, when the held-out table had been written.

    python -m bench.programs FOLDER [PART]... [--only NAME] [--again] [--jobs N]

`--only` writes no table. `--again` writes one apart: a set that was looked at since is no longer held out. `--jobs`
rehearses several programs at a time: their seconds are then no measure of speed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from tempfile import TemporaryFile
from typing import Any

from bench.results import write_section

DATA = Path(__file__).parent / "data" / "programs.json"
COLUMNS = ("program", "true reserved MiB", "reserved", "allocated", "stopped", "s", "processor s", "in band")
PARTS = {
    "dev": ", looked at", "heldout": ", held out", "heldout2": ", held out, second set",
    "heldout3": ", held out, third set", "heldout4": ", held out, fourth set", "heldout5": ", held out, fifth set",
    "oom": "", "oom-heldout": ", held out", "oom-heldout2": ", held out, second set",
}  # fmt: skip
PLENTY = 1 << 36
Table = tuple[str, tuple[str, ...], list[list[object]]]
LONGEST_S = 300  # on a busy machine; the figure asks for 60 where nothing else runs


def rehearsed(row: dict[str, Any], folder: str, vram: int, seconds: int = LONGEST_S) -> dict[str, Any]:
    """Return what `predict` says about a program on a card of so many bytes, with how long it took."""
    here = json.loads(json.dumps(row).replace("{programs}", folder))
    python = f"{folder}/venv/bin/{here['argv'][0]}"
    command = [sys.executable, "-m", "legroom.cli.main", "predict", "--json", "--vram", f"{vram}B",
               "--seconds", str(seconds), "--", python, *here["argv"][1:]]  # fmt: skip
    began = time.monotonic()
    paths = [each for each in (here["env"].get("PYTHONPATH"), os.environ.get("PYTHONPATH")) if each]
    environment = {**os.environ, **here["env"], **({"PYTHONPATH": os.pathsep.join(paths)} if paths else {})}
    with TemporaryFile("w+") as said, TemporaryFile("w+", errors="replace") as complaints:
        child = subprocess.Popen(command, cwd=here["cwd"], env=environment, stdout=said, stderr=complaints)
        _, status, used = os.wait4(child.pid, 0)  # with its processor time, and that of all that it waited for
        child.returncode = os.waitstatus_to_exitcode(status)
        took = {"seconds": time.monotonic() - began, "processor_s": used.ru_utime + used.ru_stime}
        said.seek(0), complaints.seek(0)
        try:
            found: dict[str, Any] = json.loads(said.read())["runs"][0]
        except (ValueError, KeyError, IndexError):
            lines = (complaints.read().strip() or "nothing said").splitlines()
            return {"failed": lines[-1][:100], **took}
    return {**found, **took}


def _difference(found: int, true: int) -> str:
    return "exact" if found == true else f"{found / true - 1:+.2%}"


def compare(row: dict[str, Any], folder: str) -> tuple[list[object], float | None]:
    """Return a line of the table, and by how much reserved memory misses; None where there was no answer."""
    said, true = rehearsed(row, folder, PLENTY), row["truth"]
    books = ((said.get("gpu") or {}).get("allocator")) or {}
    size = f"{true['peak_reserved'] / 2**20:.0f}"
    times = [f"{said['seconds']:.0f}", f"{said['processor_s']:.0f}"]
    if "peak_reserved" not in books:
        why = said.get("failed") or (said.get("program") or {}).get("stopped", "")
        line: list[object] = [row["name"], size, "no answer", "", why, *times, "no"]
        print(*line, sep="  ", flush=True)
        return line, None
    low, high = books.get("band") or (0, 0)
    line = [
        row["name"], size, _difference(books["peak_reserved"], true["peak_reserved"]),
        _difference(books["peak_allocated"], true["peak_allocated"]), said["program"]["stopped"],
        *times, "yes" if low <= true["peak_reserved"] <= high else "no",
    ]  # fmt: skip
    print(*line, sep="  ", flush=True)
    return line, books["peak_reserved"] / true["peak_reserved"] - 1


def half(rows: list[dict[str, Any]], folder: str, jobs: int) -> Table:
    """Rehearse one half of the programs."""
    lines: list[list[object]] = []
    misses: dict[str, list[float | None]] = {"public, unedited": [], "scripts of our own": []}
    exact = dict.fromkeys(misses, 0)
    with ThreadPoolExecutor(jobs) as pool:
        compared = list(pool.map(lambda row: compare(row, folder), rows))
    for row, (line, miss) in zip(rows, compared, strict=True):
        if row["values_set_sizes"]:
            line[0] = f"{line[0]} (sizes depend on values)"
        else:
            failed = line[4] == "failed"  # no verdict, however right its peak up to there
            kind = "scripts of our own" if "driver" in row["of"] else "public, unedited"
            misses[kind].append(miss)
            exact[kind] += miss == 0 and not failed
        lines.append(line)
    for kind, those in misses.items():
        told = [abs(miss) for miss in those if miss is not None]
        total = f"{exact[kind]} of {len(those)} exact, {len(told)} answered"
        worst = f"worst {max(told, default=0):.2%}, median {median(told or [0]):.2%}"
        lines.append([kind, "", total, worst, "", "", "", ""])
    return "Programs as they are", COLUMNS, lines


def lines_of_death(rows: list[dict[str, Any]], folder: str, _jobs: int) -> Table:
    """Compare where programs run out of memory on cards of given sizes."""
    probe = {"argv": ["python", "-c", "import torch; torch.zeros(1, device='cuda')"], "cwd": folder, "env": {}}
    beside = PLENTY - rehearsed(probe, folder, PLENTY)["gpu"]["allocator"]["limit"]
    lines: list[list[object]] = []
    right = 0
    for row in rows:
        said = rehearsed(row, folder, row["card"] + beside)
        at = (said.get("program") or {}).get("at") or {}
        true = {key: str(value).replace("{programs}", folder) for key, value in row["at"].items()}
        found = f"{Path(at.get('file') or '-').name}:{at.get('line')}"
        same = {key: str(at.get(key)) for key in true} == true
        right += same
        lines.append([row["name"], row["card"], f"{Path(true['file']).name}:{true['line']}", found, same])
        print(*lines[-1], sep="  ", flush=True)
    lines.append(["all", "", "", f"{right} of {len(rows)}", ""])
    columns = ("program", "bytes of the card", "dies at", "rehearsed", "same")
    return "Programs that run out of memory", columns, lines


def main(arguments: list[str]) -> None:
    """Run the parts that are named, all if none is."""
    parser = argparse.ArgumentParser(prog="python -m bench.programs")
    parser.add_argument("folder", type=Path)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--only", metavar="NAME")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--jobs", type=int, default=1)
    asked = parser.parse_args(arguments)
    data = json.loads(DATA.read_text())
    for part in asked.parts or PARTS:
        rows = [row for row in data[part] if asked.only in (None, row["name"])]
        table = lines_of_death if part.startswith("oom") else half
        name, columns, lines = table(rows, str(asked.folder.resolve()), asked.jobs)
        if asked.only is None:
            again = (", no longer so", " --again") if asked.again else ("", "")
            command = f"python -m bench.programs FOLDER {part}{again[1]}"
            write_section(f"{name}{PARTS[part]}{again[0]}", columns, lines, command)


if __name__ == "__main__":
    main(sys.argv[1:])
