"""`legroom fit --param`: does the value found fit a card of exactly the bytes that were promised, and the next one not?

A pair is a program of `bench/param_programs` with one argument as the parameter, its other arguments and its grid of
values, and a card: the memory of a card of legroom's table, or a random size. Each pair is fitted as a user would do
it. Then the program itself runs with the CUDA build of torch, on a device that executes no kernels and counts memory
as a card does, of `gpu.allocator.limit` bytes: with the value found, where it has to end well, and with the next value
that the program accepts, where it has to run out of memory. PHANTOM is the command that starts that interpreter;
FAKECUDA_BYTES sets the size of its device, and FAKECUDA_VMM lets it fail as a driver does. It is an RTX 4090 but for
that, as the card that a rehearsal with `--vram` finds, and runs without cuDNN's v8 interface, which rehearsals are
told too.

Pairs are drawn by a seeded generator, apart for each part. `dev` was looked at while the search was mended. `second`
was drawn to be held out, but its first pairs led to further mends of the search (after the 9th and the 15th pair), so
it is not; each of its pairs stands as it came, by the search of that moment, but for one that was run again with more
time (LONGEST_S) and a larger smallest value. `held-out` was drawn once, by the search of b8f255e (2026-11-17); after it
the workspace of convolutions was taken out of what a program needs, which its rows do not show yet.

A pair whose largest value fits has no next value, and one whose smallest value does not fit has no answer: both are
drawn again, and counted. Each pair is kept in FOLDER when it is done, so that a run that was stopped goes on where it
was.

    python -m bench.fit_params PHANTOM FOLDER [dev | second | held-out] [--pairs 40]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bench.results import write_section
from legroom.machine.gpu_table import GPUS
from legroom.units import MIB, format_size

PROGRAMS = Path(__file__).parent / "param_programs"
SEEDS = {"dev": 22, "second": 4022, "held-out": 90_022}
PAIRS = 40
LEAST_NEXT = 0.9  # of the next values have to run out of memory: 36 of 40
SMALLEST, LARGEST = 2048 * MIB, 24_576 * MIB  # of random cards, and of those taken from the table
LONGEST_S = "300"  # of a rehearsal: not decided by what else runs on the machine
COLUMNS = ("program", "grid", "card", "found", "fits", "next", "runs out", "rehearsals", "s each", "s in all")
REFUSED, DIED, ENDED = "refused", "out of memory", "ended well"


@dataclass(frozen=True)
class Knob:
    """One argument of a program that a search may set.

    Args:
        values: `low, high`: of the grid; the answer lies between them for all cards.
        others: of these lines of further arguments one is drawn.
        accepts: whether the program takes a value, given the further arguments.
        unit: that a user would count in; the values of a grid are multiples of it away from the smallest one.
    """

    program: str
    argument: str
    values: tuple[int, int]
    others: tuple[str, ...] = ("",)
    accepts: Callable[[int, str], bool] = lambda value, others: True
    unit: int = 1


def _number(others: str, name: str, default: int) -> int:
    words = others.split()
    return int(words[words.index(name) + 1]) if name in words else default


KNOBS = (
    Knob("ppo_vectors", "--num-envs", (512, 524_288), ("", "--num-steps 7 --num-minibatches 6"),
         lambda n, o: n * _number(o, "--num-steps", 8) % _number(o, "--num-minibatches", 4) == 0, unit=64),
    Knob("ppo_vectors", "--num-steps", (4, 512), ("--num-envs 16384 --num-minibatches 8 --iterations 1",)),
    Knob("ppo_pictures", "--num-envs", (16, 16_384), ("", "--num-steps 12"), lambda n, o: n % 4 == 0),
    Knob("dqn_card", "--batch-size", (64, 131_072), ("", "--buffer-size 20000"), unit=8),
    Knob("dqn_card", "--buffer-size", (1_000, 1_000_000), ("--batch-size 64", "--batch-size 512"), unit=500),
    Knob("sac_vectors", "--batch-size", (256, 524_288), ("--hidden 768", "--hidden 1024"), unit=8),
    Knob("sac_vectors", "--hidden", (64, 24_576), ("--batch-size 512", "--batch-size 4096"),
         lambda n, o: n % 32 == 0, unit=32),
    Knob("classifier", "--batch-size", (16, 24_576), ("", "--width 48", "--optimizer adamw")),
    Knob("classifier", "--width", (8, 2_048), ("--batch-size 96", "--batch-size 200 --optimizer adamw")),
    Knob("transformer", "--batch-size", (2, 512),
         ("--precision fp16", "--precision bf16", "--precision fp32", "--precision fp16 --accumulate 4"),
         lambda n, o: n % _number(o, "--accumulate", 1) == 0),
    Knob("transformer", "--seq-len", (64, 16_384), ("--batch-size 4 --precision bf16", "--precision fp16"), unit=32),
    Knob("transformer", "--width", (64, 8_192), ("--batch-size 4 --layers 2", "--precision bf16"),
         lambda n, o: n % 8 == 0, unit=8),
    Knob("lstm", "--batch-size", (8, 16_384), ("", "--hidden 384 --layers 1")),
    Knob("lstm", "--seq-len", (64, 65_536), ("--batch-size 64", "--batch-size 48 --chunks 6"),
         lambda n, o: n % _number(o, "--chunks", 4) == 0, unit=4),
    Knob("vae", "--batch-size", (8, 8_192), ("", "--side 96")),
    Knob("vae", "--side", (32, 2_048), ("--batch-size 16", "--batch-size 8"), lambda n, o: n % 16 == 0, unit=16),
    Knob("gan", "--batch-size", (32, 16_384), ("", "--penalty-every 100")),
    Knob("gan", "--width", (16, 4_096), ("--batch-size 64", "--batch-size 200"), lambda n, o: n & (n - 1) == 0,
         unit=16),
    Knob("sb3_ppo", "--batch-size", (64, 1_024), ("--width 96", "--n-steps 60 --width 128"),
         lambda n, o: 16 * _number(o, "--n-steps", 64) % n == 0, unit=8),
    Knob("sb3_dqn", "--batch-size", (128, 524_288), ("", "--width 1536"), unit=8),
    Knob("sb3_dqn", "--width", (256, 24_576), ("", "--batch-size 2048"), unit=8),
)  # fmt: skip


@dataclass(frozen=True)
class Pair:
    """A program with its parameter and grid, and a card."""

    knob: Knob
    others: str
    grid: str
    values: Sequence[int]
    vram: int

    def command(self, value: int | str) -> list[str]:
        return [str(PROGRAMS / f"{self.knob.program}.py"), *self.others.split(), self.knob.argument, str(value)]

    def next_to(self, value: int) -> int | None:
        """Return the next value of the grid that the program accepts."""
        return next((each for each in self.values if each > value and self.knob.accepts(each, self.others)), None)


def pairs(seed: int) -> Iterator[Pair]:
    """Yield pairs without end; the same for the same seed."""
    draw = random.Random(seed)
    cards = sorted({card.total for card in GPUS if SMALLEST <= card.total <= LARGEST})
    while True:
        for knob in draw.sample(KNOBS, len(KNOBS)):  # each argument once before one comes twice
            others, (low, high) = draw.choice(knob.others), knob.values
            vram = draw.choice(cards) if draw.random() < 0.5 else int(SMALLEST * (LARGEST / SMALLEST) ** draw.random())
            grid, values = _grid(low, high, knob.unit, draw)
            yield Pair(knob, others, grid, values, vram)


def _grid(low: int, high: int, unit: int, draw: random.Random) -> tuple[str, Sequence[int]]:
    """Return a grid as it is typed, and its values: every unit of a short range, 40 to 400 steps, or a list."""
    if draw.random() < 0.5:
        step = max(round((high - low) / (40 * 10 ** draw.random()) / unit), 1) * unit
        return f"{low}..{high}" + (f":{step}" if step > 1 else ""), range(low, high + 1, step)
    ratio = draw.choice((2.0, 1.5, 1.25))
    wanted = (low * ratio**power for power in range(64) if low * ratio**power <= high)
    values = sorted({max(round(each / unit), 1) * unit for each in wanted})
    return ",".join(map(str, values)), values


def fitted(pair: Pair) -> dict[str, Any]:
    """Return the document of `legroom fit --param`, with how long it took."""
    command = [
        sys.executable, "-m", "legroom.cli.main", "fit", "--json", "--vram", f"{pair.vram}B", "--ram", "1TiB",
        "--seconds", LONGEST_S,
        "--param", f"n={pair.grid}", "--", sys.executable, *pair.command("{n}"),
    ]  # fmt: skip
    began = time.monotonic()
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TORCH_CUDNN_V8_API_DISABLED": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    try:
        document: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr}") from None
    return {**document, "seconds": time.monotonic() - began}


def on_card(phantom: str, pair: Pair, value: int, nbytes: int) -> str:
    """Return how the program ends on a card of so many bytes.

    Raises:
        RuntimeError: it fails for another reason than memory.
    """
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "FAKECUDA_BYTES": str(nbytes), "FAKECUDA_VMM": "1"}
    environment.pop("PYTHONPATH", None)
    command = [phantom, *pair.command(value)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return ENDED
    if "OutOfMemoryError" in done.stderr:
        return DIED
    raise RuntimeError(f"{' '.join(command)}: {done.stderr[-500:]}")


def judged(phantom: str, pair: Pair) -> dict[str, Any]:
    """Fit one pair and try what was found; `skipped` says why a pair is to be drawn again."""
    document = fitted(pair)
    trials = [one["seconds"] for one in document["trials"]]
    kept: dict[str, Any] = {
        "program": f"{pair.knob.program} {pair.others} {pair.knob.argument}".replace("  ", " "), "grid": pair.grid,
        "vram": pair.vram, "trials": trials, "seconds": document["seconds"], "why": document["why"], "found": None,
        "tried": [(one["params"]["n"], one["fits"]) for one in document["trials"]],
    }  # fmt: skip
    if document["params"] is None:
        return {**kept, "skipped": "the smallest value does not fit" if document["fits"] is False else ""}
    found = int(document["params"]["n"])
    after, limit = pair.next_to(found), document["runs"][0]["gpu"]["allocator"]["limit"]
    kept |= {"found": found, "next": after, "limit": limit}
    if after is None:
        return {**kept, "skipped": "the largest value fits"}
    return {
        **kept, "skipped": "", "fits": on_card(phantom, pair, found, limit) == ENDED,
        "runs out": on_card(phantom, pair, after, limit) == DIED,
    }  # fmt: skip


def line(kept: dict[str, Any]) -> list[object]:
    """Return the row of one pair."""
    grid = kept["grid"] if ".." in kept["grid"] else f"{kept['grid'].count(',') + 1} values"
    each = f"{median(kept['trials']):.0f}, ≤ {max(kept['trials']):.0f}"
    head, tail = (
        [kept["program"], grid, format_size(kept["vram"])],
        [len(kept["trials"]), each, f"{kept['seconds']:.0f}"],
    )
    if kept["found"] is None:
        return [*head, "none", f"unknown: {kept['why']}", "", "", *tail]
    yes = {True: "yes", False: "NO"}
    return [*head, kept["found"], yes[kept["fits"]], kept["next"], yes[kept["runs out"]], *tail]


def report(part: str, done: Sequence[dict[str, Any]]) -> bool:
    """Write the table of a part; return whether its figures are reached."""
    counted = [kept for kept in done if not kept["skipped"]]
    fits, over = (sum(bool(kept.get(name)) for kept in counted) for name in ("fits", "runs out"))
    numbers = [len(kept["trials"]) for kept in counted]
    seconds = [kept["seconds"] for kept in counted]
    rows = [line(kept) for kept in counted]
    rows.append([
        f"{len(counted)} pairs, {len(done) - len(counted)} drawn again", "", "", "", f"{fits} of {len(counted)} (all)",
        "", f"{over} of {len(counted)} (≥ {LEAST_NEXT:.0%})", f"median {median(numbers):.0f}, worst {max(numbers)}",
        f"median {median(s for kept in counted for s in kept['trials']):.0f}",
        f"median {median(seconds):.0f}, worst {max(seconds):.0f}",
    ])  # fmt: skip
    write_section(f"Arguments that fit, {part}", COLUMNS, rows, f"python -m bench.fit_params PHANTOM FOLDER {part}")
    return fits == len(counted) and over >= LEAST_NEXT * len(counted)


def main(arguments: Sequence[str]) -> int:
    """Do the pairs of one part that are not done yet, and report."""
    parser = argparse.ArgumentParser(description="Values found by fit --param, tried on a card of that size.")
    parser.add_argument("phantom")
    parser.add_argument("folder", type=Path)
    parser.add_argument("part", nargs="?", default="dev", choices=SEEDS)
    parser.add_argument("--pairs", type=int, default=PAIRS)
    options = parser.parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    kept_in = options.folder / f"{options.part}.jsonl"
    done = [json.loads(text) for text in kept_in.read_text().splitlines()] if kept_in.exists() else []
    for number, pair in enumerate(pairs(SEEDS[options.part])):
        if sum(not kept["skipped"] for kept in done) >= options.pairs:
            break
        if number < len(done):
            continue
        done.append(judged(options.phantom, pair))
        print(json.dumps(done[-1]), flush=True)
        with kept_in.open("a") as file:
            file.write(json.dumps(done[-1]) + "\n")
    return 0 if report(options.part, done) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
