"""What `legroom predict -- COMMAND` says of JAX programs, beside what an independent script adds up (`jax_truth.py`).

The programs are other people's: a JSON file names them, one object each with `name`, `folder` to run it in, `python`
(its own interpreter), `script` and `arguments`. Each is rehearsed and counted.
Needs the extra `xla-gpu`; what was found is kept in build/jax_programs.json.

    python -m bench.jax_programs PROGRAMS.json
    python -m bench.jax_programs playground PYTHON [ENVIRONMENT ...]

`playground` asks about brax's PPO on MuJoCo Playground, with an interpreter that has `playground` and brax. Physics are
MJX's own in JAX (`impl: jax`, the default). With Warp's the program calls kernels that no XLA plans: the bill has an
item with a wide band for them, and there is nothing to count.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench.results import write_section
from legroom.machine.gpu_table import find_gpu
from legroom.xla.target import plugin_missing, target_text

CARD = "RTX 4090"
KEPT = Path("build/jax_programs.json").absolute()
TRUTH = Path(__file__).with_name("jax_truth.py")
MOST_ERROR, MOST_MINUTES = 0.03, 5


def predict(program: dict[str, Any]) -> tuple[int, float]:
    """Return the bytes of XLA's allocator at the peak, and seconds."""
    command = [program["python"], program["script"], *program["arguments"]]
    asked = [sys.executable, "-m", "legroom.cli.main", "predict", "--json", "--gpu", CARD, "--seconds", "400"]
    began = time.monotonic()
    done = subprocess.run([*asked, "--", *command], cwd=program["folder"], capture_output=True, text=True, check=False)
    areas = json.loads(done.stdout)["runs"][0]["program"]["areas"]
    return sum(area["nbytes"] for area in areas), time.monotonic() - began


def counted(program: dict[str, Any]) -> int:
    """Return the same as the independent script adds it up; asserts about values that are not computed are left out."""
    folder = KEPT.parent / "jax_truth" / program["name"].replace(" ", "-")  # XLA's flags end at a space
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    target = folder / "card.txt"
    target.write_text(target_text(find_gpu(CARD)))
    lower = [program["python"], "-O", str(TRUTH), "lower", str(folder), program["script"], *program["arguments"]]
    seen = subprocess.run(lower, cwd=program["folder"], capture_output=True, text=True, check=False)
    if not (folder / "calls.json").exists():  # a program may fail on zeros at its end, but not before
        raise SystemExit(f"{program['name']}: {seen.stderr.strip().rpartition(chr(10))[2]}")
    done = subprocess.run(
        [sys.executable, str(TRUTH), "compile", str(folder), str(target)], capture_output=True, text=True, check=True
    )
    return int(json.loads(done.stdout.splitlines()[-1])["peak"])


def programs() -> int:
    if missing := plugin_missing():
        print(f"XLA cannot be asked for a card here: {missing}", file=sys.stderr)
        return 3
    programs = json.loads(Path(sys.argv[1]).read_text())
    KEPT.parent.mkdir(exist_ok=True)
    kept: dict[str, dict[str, Any]] = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    rows, worst = [], 0.0
    for program in programs:
        found = kept.setdefault(program["name"], {})
        if "said" not in found:
            found["said"], found["seconds"] = predict(program)
        if "counted" not in found:
            found["counted"] = counted(program)
        KEPT.write_text(json.dumps(kept, indent=1))
        error = found["said"] / found["counted"] - 1
        worst = max(worst, abs(error))
        rows.append([
            program["name"], program.get("jax", ""), f"{found['said']:,}", f"{found['counted']:,}", f"{error:+.2%}",
            f"{found['seconds'] / 60:.1f}",
        ])  # fmt: skip
    required = [f"<= {MOST_ERROR:.0%}", f"<= {MOST_MINUTES}"]
    rows.append([f"required of {len(programs)}", "", "", "", *required])
    columns = ["program", "jax", "legroom (bytes)", "independent count (bytes)", "error", "minutes"]
    write_section("JAX programs, unedited, on an RTX 4090", columns, rows, "python -m bench.jax_programs PROGRAMS.json")
    return 0 if worst <= MOST_ERROR else 1


SCRIPT = Path(__file__).with_name("playground_ppo.py").absolute()
PLAYGROUND_KEPT = Path("build/playground.json").absolute()
ENVIRONMENTS = ("CartpoleBalance", "CheetahRun", "WalkerWalk", "HopperHop", "ReacherEasy")
SIZES = (512, 2048)


def playground(python: str, environments: list[str]) -> int:
    PLAYGROUND_KEPT.parent.mkdir(exist_ok=True)
    kept: dict[str, dict[str, Any]] = json.loads(PLAYGROUND_KEPT.read_text()) if PLAYGROUND_KEPT.exists() else {}
    rows, worst = [], 0.0
    for environment in environments or ENVIRONMENTS:
        for size in SIZES:
            name = f"{environment} {size}"
            arguments = [environment, str(size), "jax"]
            program = {
                "name": name, "folder": str(SCRIPT.parent), "python": python, "script": str(SCRIPT),
                "arguments": arguments,
            }  # fmt: skip
            found = kept.setdefault(name, {})
            if "said" not in found:
                found["said"], found["seconds"] = predict(program)
            if "counted" not in found:
                found["counted"] = counted(program)
            PLAYGROUND_KEPT.write_text(json.dumps(kept, indent=1))
            error = found["said"] / found["counted"] - 1
            worst = max(worst, abs(error))
            minutes = f"{found['seconds'] / 60:.1f}"
            rows.append([
                environment, f"{size:,}", f"{found['said']:,}", f"{found['counted']:,}", f"{error:+.2%}", minutes,
            ])  # fmt: skip
            print(rows[-1], flush=True)
    rows.append([f"required of {len(rows)}", "", "", "", f"<= {MOST_ERROR:.0%}", ""])
    columns = ["environment", "num_envs", "legroom (bytes)", "independent count (bytes)", "error", "minutes"]
    title = f"MuJoCo Playground: brax's PPO on an {CARD}"
    write_section(title, columns, rows, "python -m bench.jax_programs playground PYTHON")
    return 0 if worst <= MOST_ERROR else 1


if __name__ == "__main__":
    sys.exit(playground(sys.argv[2], sys.argv[3:]) if sys.argv[1] == "playground" else programs())
