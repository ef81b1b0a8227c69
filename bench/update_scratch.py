"""What updates take beyond their tensors, measured, beside what arithmetic assumes where nothing was measured.

Every update is made in a process forked from one that has the libraries loaded, which is quicker than a fresh one and
measures a little less. The constants of `backends/sb3/bill/network.py` were set on these.

    python -m bench.update_scratch [NAME...]
"""

from __future__ import annotations

import json
import os
import statistics
import sys
from collections.abc import Iterator
from typing import Any

from bench.accuracy import box, discrete, spec
from bench.results import write_section
from legroom.backends.sb3.base_figures import base_figures
from legroom.backends.sb3.bill.net_arithmetic import estimate_net
from legroom.backends.sb3.bill.network import OPERATOR_SCRATCH, network_items
from legroom.backends.sb3.stored import gather_excess, in_flight_nbytes, one_env, pass_samples, update_nbytes
from legroom.machine import probe
from legroom.model.evidence import Evidence
from legroom.model.run import Run

MB = 1e6
VALUES, ROLLOUTS = ("DQN", "QRDQN"), ("PPO", "A2C", "TRPO", "RecurrentPPO")


def vectors() -> Iterator[tuple[str, dict[str, Any]]]:
    for width, layers in ((64, 2), (256, 2), (512, 2), (512, 3), (1024, 2), (1024, 3), (2048, 2)):
        for algo in ("PPO", "A2C", "TRPO", "DQN", "QRDQN", "SAC", "TD3", "TQC", "CrossQ"):
            sizes = {"n_steps": 128} if algo in ROLLOUTS else {"buffer_size": 1000}
            action = discrete(2) if algo in (*ROLLOUTS, *VALUES) else box(3)
            yield f"{algo} {width}x{layers}", spec(algo, box(11), action, 1000, net_arch=[width] * layers, **sizes)


def pixels() -> Iterator[tuple[str, dict[str, Any]]]:
    for shape in ((48, 48, 3), (64, 64, 12), (84, 84, 4), (96, 96, 3)):
        for algo, batch in (("PPO", 64), ("PPO", 256), ("A2C", 40), ("DQN", 32), ("QRDQN", 32), ("SAC", 64),
                            ("RecurrentPPO", 64), ("RecurrentPPO", 128)):  # fmt: skip
            sizes = {"n_steps": batch} if algo == "A2C" else {"batch_size": batch}
            sizes |= {"n_steps": 256} if "PPO" in algo else {} if algo == "A2C" else {"buffer_size": 1000}
            policy, action = "CnnLstmPolicy" if algo == "RecurrentPPO" else "CnnPolicy", discrete(6)
            image = box(*shape, dtype="uint8")
            run = spec(algo, image, box(3) if algo == "SAC" else action, 1000, policy, **sizes)
            yield f"{algo} {'x'.join(map(str, shape))} batch {batch}", run


def measure(run: Run) -> dict[str, int]:
    """Return what one update takes beyond its estimated tensors, and what is assumed; in a forked process."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        from legroom.backends.sb3.evidence_child import measure_updates

        try:
            net, made = estimate_net(run, "cpu"), measure_updates(run, [pass_samples(run)])[-1]
            tensors = net.weights + net.gradients + net.optimizer + update_nbytes(net) + gather_excess(net)
            evidence = Evidence(probe(), "cpu", base_figures(), net)
            assumed = sum(i.nbytes for i in network_items(run, evidence) if i.name == OPERATOR_SCRATCH)
            told = {"measured": made.peak - tensors - in_flight_nbytes(one_env(run)), "assumed": assumed}
            os.write(writing, json.dumps(told).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    found: dict[str, int] = json.loads(text or "{}")
    return found


def main(names: list[str]) -> int:
    import sb3_contrib  # noqa: F401 - loaded once, for all that are forked
    import torch

    torch.set_num_threads(1)
    rows, gaps = [], []
    for name, data in (*vectors(), *pixels()):
        if names and name not in names:
            continue
        found = measure(Run.model_validate(data))
        if found:
            gaps.append(abs(found["assumed"] - found["measured"]))
            rows.append([name, f"{found['measured'] / MB:.0f}", f"{found['assumed'] / MB:.0f}"])
            print("  ".join(rows[-1]), flush=True)
    rows.append([f"median difference {statistics.median(gaps) / MB:.0f} MB, largest {max(gaps) / MB:.0f} MB", "", ""])
    if not names:
        write_section(
            "Scratch of updates", ["update (MB)", "measured", "assumed"], rows, "python -m bench.update_scratch"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
