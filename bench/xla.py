"""XLA's plan for a run on a card, as `predict` has it, beside what XLA says of that very run and card.

For the robot the shipped plans predict; for environments of brax XLA is asked, as `predict` asks it. `LOOKED_AT`
are the sizes that the prediction was made with; what is held out is drawn by chance (`drawn`), from environments that
were not looked at and the robot. SAC has sizes of its own (`drawn_sac`): environments / batch × rows of the replay
buffer / updates per training step. Needs the extra `xla-gpu`.

    python -m bench.xla              # half an hour on two quiet cores; what was asked is kept in build/xla.json
    python -m bench.xla held-out     # that part alone
    python -m bench.xla sac          # SAC alone, a section of its own
    python -m bench.xla quick        # robot:quick alone, likewise
"""

import json
import random
import statistics
import sys
from pathlib import Path
from typing import Any

from bench.results import write_section
from legroom.backends.brax.asking import ask_compiler
from legroom.backends.brax.plans import Sizes, with_sizes
from legroom.machine.gpu_table import find_gpu
from legroom.model.machine import Machine
from legroom.model.run import Run
from legroom.predicting.predict import predict
from legroom.reading import read
from legroom.units import GIB
from legroom.xla.target import plugin_missing, target_text

KEPT = Path("build/xla.json")
MEDIAN, WORST = 0.03, 0.10
TEMPORARIES = (
    "network.activations", "rollout", "rollout.copies", "replay.copies", "envs.temporaries", "xla.other temporaries",
)  # fmt: skip
Pair = tuple[str, str, Sizes]
# environment | card | num_envs, batch_size, num_minibatches, unroll_length
LOOKED_AT: tuple[Pair, ...] = (
    ("robot:default", "RTX 4090", Sizes(2048, 512, 4, 10)),
    ("robot:default", "RTX 3090", Sizes(512, 128, 8, 20)),
    ("robot:default", "A100", Sizes(4096, 1024, 4, 10)),
    ("robot:default", "H100", Sizes(2048, 256, 32, 5)),
    ("robot:default", "RTX 4070", Sizes(1024, 256, 16, 10)),
    ("robot:default", "T4", Sizes(512, 128, 4, 10)),
    ("robot:default", "RTX 5090", Sizes(8192, 2048, 4, 10)),
    ("robot:default", "RTX 4060", Sizes(1024, 512, 8, 20)),
    ("robot:default", "RTX 2080 Ti", Sizes(2048, 1024, 8, 10)),
    ("robot:default", "L4", Sizes(4096, 512, 32, 20)),
    ("inverted_pendulum", "RTX 3090", Sizes(2048, 512, 16, 20)),
    ("inverted_pendulum", "A100", Sizes(4096, 512, 8, 5)),
    ("reacher", "RTX 4060", Sizes(2048, 1024, 4, 20)),
    ("reacher", "H100", Sizes(1024, 256, 32, 10)),
)
SEED, ROBOTS, OTHERS, SACS, QUICKS = 27411, 4, 8, 8, 2
QUICK_CARDS = ("A100", "RTX 3060", "RTX 3090", "A10", "RTX 4060", "RTX 4090", "L40S", "H100")  # whose plans are shipped
ENVIRONMENTS = ("ant", "halfcheetah", "hopper", "inverted_double_pendulum", "swimmer", "walker2d")
CARDS = (
    "T4", "RTX 2080 Ti", "A100", "RTX 3060", "RTX 3090", "A10", "RTX 4060", "RTX 4090", "L40S", "H100", "RTX 5070",
    "RTX 5090",
)  # fmt: skip


def drawn() -> list[Pair]:
    """Return pairs by chance: the robot, and three environments that were not looked at; sizes as people set them."""
    chance = random.Random(SEED)
    environments = chance.sample(ENVIRONMENTS, 3)
    names = ["robot:default"] * ROBOTS + [environments[at % 3] for at in range(OTHERS)]
    cards = chance.sample(CARDS, len(names))
    pairs: list[Pair] = []
    while len(pairs) < len(names):
        batch, minibatches = chance.choice((64, 100, 128, 256, 384, 512, 1024, 2048)), chance.choice((4, 8, 16, 32))
        envs, unroll = batch * minibatches // chance.choice((1, 1, 2, 4)), chance.choice((5, 10, 20, 30))
        sizes = Sizes(envs, batch, minibatches, unroll)
        if 256 <= envs <= 16_384:
            pairs.append((names[len(pairs)], cards[len(pairs)], sizes))
    return pairs


def drawn_quick() -> list[Pair]:
    """Return pairs of the robot with smaller networks, whose plans are shipped."""
    chance = random.Random(SEED)
    cards = chance.sample(QUICK_CARDS, QUICKS)
    sizes = [(chance.choice((64, 128, 256)), chance.choice((4, 8)), chance.choice((1, 2, 4))) for _ in cards]
    unrolls = [chance.choice((5, 10, 20)) for _ in cards]
    return [
        ("robot:quick", card, Sizes(batch * minibatches // times, batch, minibatches, unroll))
        for card, (batch, minibatches, times), unroll in zip(cards, sizes, unrolls, strict=True)
    ]


def drawn_sac() -> list[Pair]:
    """Return pairs of SAC by chance: environments and sizes that were not looked at."""
    chance = random.Random(SEED)
    names, cards = chance.sample(ENVIRONMENTS, 2), chance.sample(CARDS, 2)
    return [
        (
            f"SAC {names[at % 2]}", cards[at % 2],
            Sizes(
                chance.choice((64, 128, 256, 512)), chance.choice((128, 256, 512, 1024)),
                chance.choice((100_000, 2**18, 10**6)), chance.choice((1, 4, 8, 16, 32, 64)), replay=True,
            ),
        )
        for at in range(SACS)
    ]  # fmt: skip


def base_run(name: str) -> Run:
    if ":" in name:
        return read(name)
    if name.startswith("SAC "):
        return Run.model_validate({
            "algo": "SAC", "backend": "brax", "env": {"id": name[4:], "n_envs": 128}, "eval": {"n_envs": 64},
            "hyperparams": {"batch_size": 256, "min_replay_size": 0, "episode_length": 500},
        })  # fmt: skip
    return Run.model_validate({
        "algo": "PPO", "backend": "brax", "env": {"id": name, "n_envs": 1024}, "eval": {"n_envs": 64},
        "hyperparams": {"batch_size": 256, "num_minibatches": 4, "unroll_length": 10, "episode_length": 500},
    })  # fmt: skip


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


def predicted(name: str, card_name: str, sizes: Sizes) -> tuple[int, int]:
    """Return the temporaries as `predict` says them, and how far off the bill allows them to be."""
    card = find_gpu(card_name)
    machine = Machine(ram=64 * GIB, limit=None, available=64 * GIB, swap=0, shm=GIB, gpus=(card.as_gpu(),))
    footprint = predict(with_sizes(base_run(name), sizes), machine, device="cuda")
    items = [item for item in footprint.items if item.name in TEMPORARIES]
    return sum(item.total for item in items), sum(item.error for item in items)


ALONE = {
    "sac": ("Temporaries of a SAC step of brax on a card", drawn_sac),
    "quick": ("Temporaries of robot:quick on a card", drawn_quick),
}


def main() -> int:
    if missing := plugin_missing():
        print(f"XLA cannot be asked for a card here: {missing}", file=sys.stderr)
        return 3
    rows: list[tuple[str, ...]] = []
    part = next((each for each in ALONE if each in sys.argv), None)
    title, draw = ALONE[part] if part else ("Temporaries of a brax step on a card", drawn)
    parts = [("held out", draw()), *([] if part or "held-out" in sys.argv else [("looked at before", LOOKED_AT)])]
    for what, pairs in parts:
        errors, outside = [], 0
        for name, card, sizes in pairs:
            (said, band), really = predicted(name, card, sizes), planned(name, card, sizes)
            error = said / really - 1
            errors.append(abs(error))
            outside += abs(said - really) > band
            setting = f"{sizes.envs:,} / {sizes.batch:,} × {sizes.minibatches} / {sizes.unroll}"
            rows.append((
                name, find_gpu(card).name, setting, what, f"{said / 1e6:,.1f} ± {band / 1e6:,.1f} MB",
                f"{really / 1e6:,.1f} MB", f"{error:+.1%}",
            ))  # fmt: skip
            tell(" | ".join(rows[-1]))
        summary = f"median {statistics.median(errors):.1%}, worst {max(errors):.1%} (asked {MEDIAN:.0%}, {WORST:.0%})"
        rows.append((f"{what}: {len(pairs)} pairs, {outside} outside", "", "", "", "", "", summary))
    sizes_column = "envs / batch × replay rows / updates" if part == "sac" else "envs / batch × minibatches / unroll"
    columns = ["environment", "card", sizes_column, "seen", "predicted", "XLA for the card", "error"]
    write_section(title, columns, rows, f"python -m bench.xla {part}" if part else "make bench-xla")
    return 0


if __name__ == "__main__":
    sys.exit(main())
