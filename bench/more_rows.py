"""The second set of GPU runs for bench/make_truth.py: other networks and algorithms (bench/more_nets.py), another seed.

PHANTOM -m bench.more_rows            writes data/vram_own2_heldout.json
PHANTOM -m bench.more_rows NAME...    records these rows only and prints them
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable
from typing import Any

from bench.make_truth import (
    DATA,
    RESERVE,
    Row,
    any_algorithm,
    box,
    continuous,
    discrete,
    image,
    off_policy,
    on_policy,
    record_apart,
    rows_of_vectors,
    save,
    vector,
    with_arch,
)

SEED = 20261129
NETS = "bench.more_nets"


def with_net(row: Row, net: str, **arguments: Any) -> Row:
    return row | {"features_extractor": f"{NETS}:{net}", "features_extractor_kwargs": arguments}


def with_class(row: Row, name: str) -> Row:
    return row | {"base": row["algo"], "algo": f"{NETS}:{name}"}


def sets(draw: random.Random) -> Row:
    row = any_algorithm(draw, rows_of_vectors(draw))
    return with_net(row, "Sets", width=draw.choice([64, 96]), points=draw.choice([4, 10]))


def encoder(draw: random.Random) -> Row:
    net = {"width": draw.choice([64, 96, 160]), "depth": draw.choice([1, 2]), "dropout": draw.choice([0.0, 0.1])}
    return with_net(any_algorithm(draw, rows_of_vectors(draw)), "Encoder", **net)


def rotary(draw: random.Random) -> Row:
    row = any_algorithm(draw, rows_of_vectors(draw))
    return with_net(row, "Rotary", width=draw.choice([128, 256]), depth=draw.choice([1, 2]))


def large(draw: random.Random) -> Row:
    row = on_policy(draw, image(draw), discrete(draw))
    return with_net(row, "Large", width=draw.choice([24, 40]), depth=draw.choice([1, 3]))


def excited(draw: random.Random) -> Row:
    row = on_policy(draw, image(draw), discrete(draw))
    return with_net(row, "Excited", width=draw.choice([16, 24]), stages=draw.choice([2, 3]))


def bound(draw: random.Random) -> Row:
    return with_net(any_algorithm(draw, vector(draw)), "Bound", width=draw.choice([128, 320]))


def walked(draw: random.Random) -> Row:
    net = {"kind": draw.choice(["GRU", "LSTM"]), "hidden": draw.choice([64, 128])}
    return with_net(any_algorithm(draw, rows_of_vectors(draw)), "Walked", **net)


def recalled(draw: random.Random) -> Row:
    net = {"kind": draw.choice(["GRU", "LSTM"]), "hidden": draw.choice([64, 128])}
    return with_net(on_policy(draw, rows_of_vectors(draw), discrete(draw)), "Recalled", **net) | {"truth_note": RESERVE}


def symbols(draw: random.Random) -> Row:
    side = draw.choice([8, 13, 19])
    row = any_algorithm(draw, box(side, side, dtype="int32"))
    return with_net(row, "Symbols", symbols=draw.choice([12, 200]), width=draw.choice([16, 32]))


def half_mixer(draw: random.Random) -> Row:
    net = {"dtype": draw.choice(["float16", "bfloat16"]), "width": draw.choice([64, 128])}
    return with_net(any_algorithm(draw, rows_of_vectors(draw)), "HalfMixer", **net)


def half_residual(draw: random.Random) -> Row:
    net = {"dtype": draw.choice(["float16", "bfloat16"]), "width": draw.choice([16, 32])}
    return with_net(on_policy(draw, image(draw), discrete(draw)), "HalfResidual", **net)


def compiled(draw: random.Random) -> Row:
    net = {"backend": draw.choice(["eager", "aot_eager"]), "width": draw.choice([128, 256])}
    return with_net(on_policy(draw, vector(draw), discrete(draw)), "Compiled", **net)


def evaluated_off(draw: random.Random) -> Row:
    kind = draw.choice(["DQN", "SAC"])
    obs = draw.choice([vector(draw), image(draw)]) if kind == "DQN" else vector(draw)
    row = off_policy(draw, obs, discrete(draw) if kind == "DQN" else continuous(draw), kind)
    n_envs = draw.choice([2, 24])
    return row | {"eval": {"n_envs": n_envs, "every": 40, "episodes": n_envs}}


def evaluated_net(draw: random.Random) -> Row:
    row = with_net(on_policy(draw, image(draw), discrete(draw)), "Excited", width=16, stages=2)
    n_envs = draw.choice([3, 50])
    return row | {"eval": {"n_envs": n_envs, "every": row["kwargs"]["n_steps"], "episodes": n_envs}}


def scaled_ppo(draw: random.Random) -> Row:
    return with_class(on_policy(draw, draw.choice([vector(draw), image(draw)]), discrete(draw)), "ScaledPpo")


def curious_ppo(draw: random.Random) -> Row:
    return with_class(on_policy(draw, draw.choice([vector(draw), image(draw)]), discrete(draw)), "CuriousPpo")


def patient_a2c(draw: random.Random) -> Row:
    return with_class(on_policy(draw, draw.choice([vector(draw), image(draw)]), discrete(draw), "A2C"), "PatientA2c")


def soft_dqn(draw: random.Random) -> Row:
    return with_class(off_policy(draw, draw.choice([vector(draw), image(draw)]), discrete(draw), "DQN"), "SoftDqn")


def smooth_sac(draw: random.Random) -> Row:
    return with_class(with_arch(draw, off_policy(draw, vector(draw), continuous(draw), "SAC")), "SmoothSac")


def margin_td3(draw: random.Random) -> Row:
    return with_class(with_arch(draw, off_policy(draw, vector(draw), continuous(draw), "TD3")), "MarginTd3")


def contrib(draw: random.Random) -> Row:
    algo = draw.choice(["QRDQN", "TQC", "CrossQ"])
    row = off_policy(draw, vector(draw), discrete(draw) if algo == "QRDQN" else continuous(draw), algo)
    return row if algo == "CrossQ" else with_arch(draw, row)


def masked_net(draw: random.Random) -> Row:
    row = on_policy(draw, rows_of_vectors(draw), {"type": "multidiscrete", "nvec": [5, 3, 8]}) | {"algo": "MaskablePPO"}
    return with_net(row, "Encoder", width=64, depth=1)


def trpo_net(draw: random.Random) -> Row:
    row = with_arch(draw, on_policy(draw, vector(draw), discrete(draw)))
    row["kwargs"].pop("n_epochs")
    return row | {"algo": "TRPO", "truth_note": "Tensor.__float__ answered 1.0: zeros end TRPO in a division by zero"}


KINDS: dict[Callable[[random.Random], Row], int] = {
    sets: 2, encoder: 2, rotary: 2, large: 2, excited: 1, bound: 2, walked: 2, recalled: 1, symbols: 2, half_mixer: 2,
    half_residual: 2, compiled: 2, evaluated_off: 2, evaluated_net: 1, scaled_ppo: 2, curious_ppo: 1, patient_a2c: 1,
    soft_dqn: 1, smooth_sac: 1, margin_td3: 1, contrib: 3, masked_net: 1, trpo_net: 1,
}  # fmt: skip


def main(names: list[str]) -> int:
    draw, rows = random.Random(SEED), []
    for kind, count in KINDS.items():
        for number in range(1, count + 1):
            rows.append({"name": f"{kind.__name__.replace('_', '-')}-{number}"} | kind(draw))
    for row in rows:
        if not names or row["name"] in names:
            row["truth"] = record_apart(row)
            print(json.dumps(row), flush=True)
    if names:
        return 0
    if missing := [row["name"] for row in rows if not row["truth"]]:
        print("not recorded:", *missing, file=sys.stderr)
    save([row for row in rows if row["truth"]], DATA / "vram_own2_heldout.json")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
