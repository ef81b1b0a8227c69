"""What `legroom predict` says of brax's PPO on MuJoCo Playground, beside what an independent script adds up.

Needs the extra `xla-gpu` here, and an interpreter with `playground` and brax, which is given:

    python -m bench.playground PYTHON [ENVIRONMENT ...]

Physics are MJX's own in JAX (`impl: jax`, which Playground's training script takes by default). With Warp's the
program calls kernels that no XLA plans: the bill has an item with a wide band for them, and there is nothing to count.
"""

import json
import sys
from pathlib import Path
from typing import Any

from bench.jax_programs import CARD, counted, predict
from bench.results import write_section

SCRIPT = Path(__file__).with_name("playground_ppo.py").absolute()
KEPT = Path("build/playground.json").absolute()
ENVIRONMENTS = ("CartpoleBalance", "CheetahRun", "WalkerWalk", "HopperHop", "ReacherEasy")
SIZES = (512, 2048)
MOST_ERROR = 0.03


def main() -> int:
    python, environments = sys.argv[1], sys.argv[2:] or ENVIRONMENTS
    KEPT.parent.mkdir(exist_ok=True)
    kept: dict[str, dict[str, Any]] = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    rows, worst = [], 0.0
    for environment in environments:
        for size in SIZES:
            name = f"{environment} {size}"
            arguments = [environment, str(size), "jax"]
            program = {
                "name": name, "folder": str(SCRIPT.parent), "python": python, "script": str(SCRIPT),
                "arguments": arguments,
            }  # fmt: skip
            found = kept.setdefault(name, {})
            if "said" not in found:
                found["said"], found["seconds"], _ = predict(program, "--again")
            if "counted" not in found:
                found["counted"] = counted(program)
            KEPT.write_text(json.dumps(kept, indent=1))
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
    write_section(title, columns, rows, "python -m bench.playground PYTHON")
    return 0 if worst <= MOST_ERROR else 1


if __name__ == "__main__":
    sys.exit(main())
