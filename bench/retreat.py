"""Memory that runs out inside an update: at every k-th minibatch, on a limited host, and on a card that is too small.

Faults: a network fails in every k-th minibatch (k = 1 ... 20), once or twice in a row, in PPO on lean storage and in
DQN. A redo at the same micro-batch has to end with the bits of the undisturbed training, and one in smaller pieces with
those of a training that is given the recorded schedule from the start. Single samples that fail twice in a row end it.

Host: one layer's outputs do not fit a limited process (RLIMIT_DATA), `bench.retreat_child`.

Card: `LEGROOM_PHANTOM=/path/to/fake python -m bench.retreat` runs PPO and DQN with SB3's CNN under a CUDA build of
PyTorch on a device that is not there, of a given size: without the guard, and with it. Left out where that is not set.

    python -m bench.retreat
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.results import write_section

ROOT = Path(__file__).parent.parent
COMMAND = "python -m bench.retreat"
EVERY = range(1, 21)
HOST_LIMITS = (150_000_000, 220_000_000)
CARDS = (
    ("PPO", 512, 1000), ("PPO", 2048, 1500), ("PPO", 2048, 4000), ("DQN", 512, 700),
)  # fmt: skip  # algorithm, minibatch, megabytes


def trained(algorithm: str, every: int, times: int, micro_batch: Any = None) -> tuple[str, Any, list[Any]]:
    """Return the hash of what was learned, the schedule of micro-batches, and the retreats."""
    import stable_baselines3
    import torch
    from stable_baselines3.common.vec_env import DummyVecEnv

    import legroom
    from bench.kills_env import Drift
    from bench.retreat_nets import Failing
    from legroom.backends.sb3.state import policy_arrays
    from legroom.training.checkpoint import parameters_sha256

    torch.set_num_threads(1)
    settings: dict[str, Any] = {
        "PPO": dict(n_steps=16, batch_size=16, n_epochs=4, rollout_buffer_class=legroom.LeanRolloutBuffer),
        "DQN": dict(buffer_size=200, learning_starts=32, batch_size=16, train_freq=8, gradient_steps=4),
    }[algorithm]
    faults = dict(every=every, times=times)
    network = dict(net_arch=[32], features_extractor_class=Failing, features_extractor_kwargs=faults)
    make = getattr(stable_baselines3, algorithm)
    model = make("MlpPolicy", DummyVecEnv([Drift] * 2), seed=3, device="cpu", policy_kwargs=network, **settings)
    with legroom.guard(model, micro_batch=micro_batch) as guarded:
        model.learn(192)
    return parameters_sha256(policy_arrays(model)), guarded.micro_batch, guarded.retreats


def faults() -> bool:
    """Fail at every k-th minibatch and write down what came of it."""
    rows, good = [], True
    for algorithm in ("PPO", "DQN"):
        undisturbed, _, _ = trained(algorithm, 0, 0)
        for every in EVERY:
            cells: list[object] = [algorithm, every]
            for times in (1, 2):
                try:
                    found, schedule, retreats = trained(algorithm, every, times)
                except RuntimeError as error:  # halved at every failure, down to single samples that fail
                    single = "DefaultCPUAllocator" in str(error) and times == 2
                    good &= single
                    cells += ["", "", "ends at single samples" if single else "DIED"]
                    continue
                smaller = sum(each.size != each.size_before for each in retreats)
                asked = undisturbed if schedule is None else trained(algorithm, 0, 0, schedule)[0]
                good &= found == asked and bool(retreats)
                like = "undisturbed" if schedule is None else "its schedule"
                cells += [len(retreats) - smaller, smaller, f"{'as' if found == asked else 'NOT AS'} {like}"]
            rows.append(cells)
            sys.stderr.write(f"{cells}\n")
    columns = ("algorithm", "k", "once: redone", "halved", "parameters", "twice: redone", "halved", "parameters")
    write_section("Allocation failures at every k-th update", columns, rows, COMMAND)
    return good


def host() -> bool:
    """Let a limited process run out of memory for real."""
    rows, good = [], True
    for over in HOST_LIMITS:
        limited = _child("bench.retreat_child", {"over": over, "micro_batch": None})
        if limited is None:
            rows.append((f"{over / 1e6:.0f} MB", "died", "", ""))
            good = False
            continue
        repeated = _child("bench.retreat_child", {"over": None, "micro_batch": limited["micro_batch"]})
        same = repeated is not None and repeated["sha256"] == limited["sha256"]
        good &= same
        way = " → ".join(str(size) for size in [256, *(each[2] for each in limited["retreats"])])
        rows.append((f"{over / 1e6:.0f} MB", way, str(limited["micro_batch"]), "same" if same else "DIFFERENT"))
    columns = ("updates may take", "micro-batches tried", "schedule", "parameters of a run with that schedule")
    write_section("Allocation failures on a limited host", columns, rows, COMMAND)
    return good


def cards(fake: str) -> bool:
    """Train on cards that are too small, without and with the guard."""
    rows, good = [], True
    for algorithm, batch, megabytes in CARDS:
        plain, guarded = (
            _phantom(fake, megabytes, ["bench.retreat_card", algorithm, str(batch), how]) for how in ("plain", "guard")
        )
        good &= plain is None and guarded is not None
        cells: tuple[object, ...] = ("died", "", "", "")
        if guarded is not None:
            way = " → ".join(str(size) for size in [batch, *(each[2] for each in guarded["retreats"])])
            cells = ("exit code 0", way, str(guarded["micro_batch"]), f"{guarded['reserved'] / 1e6:.0f} MB")
        rows.append((algorithm, batch, f"{megabytes} MB", "dies" if plain is None else "fits", *cells))
    columns = ("algorithm", "minibatch", "card", "SB3 alone", "guarded", "micro-batches tried", "schedule", "reserved")
    write_section("Out of memory on a card (phantom)", columns, rows, f"LEGROOM_PHANTOM=fake {COMMAND}")
    return good


def _child(module: str, task: dict[str, Any]) -> Any:
    return _last_line([sys.executable, "-m", module, json.dumps(task)], {})


def _phantom(fake: str, megabytes: int, arguments: Sequence[str]) -> Any:
    paths = {"PYTHONPATH": f"{ROOT}:{ROOT / 'src'}", "FAKECUDA_BYTES": str(megabytes * 1_000_000)}
    return _last_line([fake, "-m", *arguments], paths)


def _last_line(command: Sequence[str], environment: dict[str, str]) -> Any:
    """Return the JSON in the last line a process wrote, None where it died."""
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1", **environment}, text=True, capture_output=True,
        check=False, timeout=600,
    )  # fmt: skip
    return json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else None


def main() -> int:
    """Run all parts, or those named: faults, host, cards."""
    fake = os.environ.get("LEGROOM_PHANTOM")
    wanted = sys.argv[1:] or ["faults", "host", *(["cards"] if fake else [])]
    good = True
    for part in wanted:
        good &= {"faults": faults, "host": host, "cards": lambda: cards(fake or "fake")}[part]()
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
