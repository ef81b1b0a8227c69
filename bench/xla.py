"""XLA's plan for a run on a card, predicted from plans of other sizes, beside what XLA says of that very run and card.

For the robot the shipped plans predict; for two environments of brax XLA is first asked as `predict --mode trace` asks
it: one marked program per kind and one run of each kind, all on one card. Settings that a rule of the prediction was
found with are listed apart from those that were first looked at when it was done. Needs the extra `xla-gpu`.

    python -m bench.xla     # half an hour on two quiet cores; what was asked is kept in build/xla.json
"""

import json
import statistics
import sys
from pathlib import Path
from typing import Any

from bench.results import write_section
from legroom.backends.brax.calibration import Calibration, find_calibration
from legroom.backends.brax.card_plans import ask_for_card
from legroom.backends.brax.compiled import ask_compiler
from legroom.backends.brax.pieces import Sizes
from legroom.backends.brax.scaling import known_for
from legroom.device.xla_target import plugin_missing, target_text
from legroom.fitting.changes import with_settings
from legroom.machine.gpu_table import find_gpu
from legroom.model.run import Run
from legroom.reading import read

KEPT = Path("build/xla.json")
MEDIAN, WORST = 0.03, 0.08
BASE_CARD = "RTX 4090"
BASES = (Sizes(1024, 256, 4, 10), Sizes(512, 256, 8, 10))  # one unroll of each environment, and several
# environment | card | num_envs, batch_size, num_minibatches, unroll_length | held out: first looked at in the end
PAIRS: tuple[tuple[str, str, Sizes, bool], ...] = (
    ("robot:default", "RTX 4090", Sizes(2048, 512, 4, 10), False),
    ("robot:default", "RTX 3090", Sizes(512, 128, 8, 20), False),
    ("robot:default", "A100", Sizes(4096, 1024, 4, 10), False),
    ("robot:default", "H100", Sizes(2048, 256, 32, 5), False),
    ("robot:default", "RTX 4070", Sizes(1024, 256, 16, 10), False),
    ("robot:default", "T4", Sizes(512, 128, 4, 10), False),
    ("robot:default", "RTX 5090", Sizes(8192, 2048, 4, 10), True),
    ("robot:default", "RTX 4060", Sizes(1024, 512, 8, 20), True),
    ("robot:default", "RTX 2080 Ti", Sizes(2048, 1024, 8, 10), True),
    ("robot:default", "L4", Sizes(4096, 512, 32, 20), True),
    ("inverted_pendulum", "RTX 3090", Sizes(2048, 512, 16, 20), True),
    ("inverted_pendulum", "A100", Sizes(4096, 512, 8, 5), True),
    ("reacher", "RTX 4060", Sizes(2048, 1024, 4, 20), True),
    ("reacher", "H100", Sizes(1024, 256, 32, 10), True),
)


def base_run(name: str) -> Run:
    if ":" in name:
        return read(name)
    return Run.model_validate({
        "algo": "PPO", "backend": "brax", "env": {"id": name, "n_envs": 1024}, "eval": {"n_envs": 64},
        "hyperparams": {"batch_size": 256, "num_minibatches": 4, "unroll_length": 10, "episode_length": 500},
    })  # fmt: skip


def with_sizes(run: Run, sizes: Sizes) -> Run:
    hyper = {"batch_size": sizes.batch, "num_minibatches": sizes.minibatches, "unroll_length": sizes.unroll}
    return with_settings(with_settings(run, hyperparams=hyper), env={"n_envs": sizes.envs})


def planned(name: str, card_name: str, sizes: Sizes) -> int:
    """Return what XLA plans for the very run and card; once, since it takes a minute."""
    kept: dict[str, int] = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    card = find_gpu(card_name)
    key = f"{name} {card.name} {sizes.envs},{sizes.batch},{sizes.minibatches},{sizes.unroll}"
    if key not in kept:
        more: Any = {"target": target_text(card), "card": card.name, "evaluation": False}
        kept[key] = ask_compiler("plan", with_sizes(base_run(name), sizes), progress=tell, **more)["temporaries"]
        KEPT.parent.mkdir(exist_ok=True)
        KEPT.write_text(json.dumps(kept, indent=1))
    return kept[key]


def tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def predicted(name: str, card_name: str, sizes: Sizes) -> float:
    card, run = find_gpu(card_name), with_sizes(base_run(name), sizes)
    if ":" in name:
        known = known_for(run, card.as_gpu())
        assert known is not None and known.plan is not None
        return sum(known.temporaries(sizes).values())
    place, base = KEPT.parent.absolute() / f"xla-{name}.json", find_gpu(BASE_CARD)
    for at in BASES:
        plan = ask_for_card(with_sizes(run, at), base, place=place, progress=tell)
    any_states = find_calibration(read("robot:default"))  # only its programs are looked at, which are replaced
    assert isinstance(any_states, Calibration)
    return sum(plan.in_place_of(any_states, card).temporaries(sizes).values())


def main() -> int:
    if missing := plugin_missing():
        print(f"XLA cannot be asked for a card here: {missing}", file=sys.stderr)
        return 3
    rows, errors = [], {True: [], False: []}
    for name, card, sizes, held_out in PAIRS:
        said, really = predicted(name, card, sizes), planned(name, card, sizes)
        error = said / really - 1
        errors[held_out].append(abs(error))
        setting = f"{sizes.envs:,} / {sizes.batch:,} × {sizes.minibatches} / {sizes.unroll}"
        rows.append((
            name, find_gpu(card).name, setting, "yes" if held_out else "no", f"{said / 1e6:,.1f} MB",
            f"{really / 1e6:,.1f} MB", f"{error:+.1%}",
        ))  # fmt: skip
    for held_out, found in errors.items():
        what = f"{'held out' if held_out else 'looked at before'}: {len(found)} pairs"
        summary = f"median {statistics.median(found):.1%}, worst {max(found):.1%} (asked {MEDIAN:.0%}, {WORST:.0%})"
        rows.append((what, "", "", "", "", "", summary))
    columns = ["environment", "card", "envs / batch / unroll", "held out", "predicted", "XLA for the card", "error"]
    write_section("Temporaries of a brax step on a card", columns, rows, "make bench-xla")
    return 0


if __name__ == "__main__":
    sys.exit(main())
