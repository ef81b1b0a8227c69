"""A training killed within a rollout or an update goes on from there, and ends with the bits of one that was not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from test_retreat_knobs import BITS, TURNED

from legroom.backends.sb3 import segments
from legroom.backends.sb3.training import Sb3Learner
from legroom.fitting.changes import with_settings
from legroom.model.learner import TrainTask
from legroom.model.run import Run
from legroom.training.checkpoint import Checkpoints, checkpoint_paths

PPO = {"algo": "PPO", "hyperparams": {"n_steps": 16, "batch_size": 8, "n_epochs": 2}}
MASKED = PPO | {"algo": "MaskablePPO"}
LEAN = {"memory": {"rollout": "lean"}}
PICTURE = {"env": {"kwargs": {"picture": True}, "frame_stack": 2}}
DICT = {"env": {"kwargs": {"picture": True, "part": True}}, "policy": {"name": "MultiInputPolicy"}}
SDE = {"use_sde": True, "n_steps": 16}
CONTINUOUS = {"env": {"kwargs": {"discrete": False}}}
RUNS: dict[str, dict[str, Any]] = {
    "PPO": PPO,
    "PPO lean": PPO | LEAN,
    "PPO picture": PPO | PICTURE,
    "PPO lean picture": PPO | PICTURE | LEAN,
    "PPO dict": PPO | DICT,
    "PPO lean dict": PPO | DICT | LEAN,
    "PPO normalized": PPO | {"env": {"normalize": True}},
    "PPO light workers": PPO | {"env": {"workers": "light"}},
    "PPO stops early": PPO | {"hyperparams": PPO["hyperparams"] | {"target_kl": 2e-3, "learning_rate": 3e-3}},
    "PPO in pieces": PPO | {"memory": {"micro_batch": 3}},
    "PPO with noise of its own": PPO | CONTINUOUS | {"hyperparams": SDE | {"sde_sample_freq": 4, "batch_size": 8}},
    "A2C": {"algo": "A2C", "hyperparams": {"n_steps": 12}},
    "A2C noise of a rollout": CONTINUOUS | {"algo": "A2C", "hyperparams": SDE},
    "TRPO lean picture": {"algo": "TRPO", "hyperparams": {"n_steps": 16, "batch_size": 8}} | PICTURE | LEAN,
    "MaskablePPO": MASKED,
    "MaskablePPO lean picture": MASKED | PICTURE | LEAN,
}  # fmt: skip
TOTAL = 96


class Killed(Exception):
    """Right after a checkpoint."""


class Cut:
    """A loop that is cut at the moments with these numbers, those within iterations and those between them together."""

    def __init__(self, out: Path, cuts: set[int]) -> None:
        self.checkpoints, self.cuts, self.number, self.iteration = Checkpoints(out), cuts, 0, 0
        self.learner: Any = None
        self.said: list[str] = []

    def within(self) -> None:
        self.number += 1
        if self.number in self.cuts:
            self.cuts.discard(self.number)
            state = self.learner.capture(self.checkpoints.newest)
            assert state.exact, state.why_not_exact
            assert not {path.name for path in state.link.values()} & set(state.files)
            self.checkpoints.write(
                self.learner.timesteps, state.tensors, state.data, link=state.link, files=state.files,
                passing=self.learner.is_within,
            )  # fmt: skip
            raise Killed

    def boundary(self) -> bool:
        self.within()
        return False

    def say(self, text: str) -> None:
        self.said.append(text)

    def ignored(self, *args: Any, **kwargs: Any) -> None:
        return

    completed = progress = not_finite = phase = send = ignored


def run_of(name: str) -> Run:
    given = RUNS[name]
    env = {"id": "resume_envs:Remembered", "n_envs": 2, "workers": "dummy", **given.get("env", {})}
    policy = {"name": "MlpPolicy", "kwargs": {"net_arch": [16, 16]}, **given.get("policy", {})}
    return Run.model_validate({"seed": 3, "total_timesteps": TOTAL, "eval": {}, **given, "env": env, "policy": policy})


def trained(run: Run, out: Path, cuts: set[int], after: Run | None = None) -> tuple[str, int, list[str]]:
    """Train to the end, with a fresh process's objects after every cut; return the hash, the moments, what was lost.

    Args:
        after: the run with a knob turned, with which it goes on after the first cut.
    """
    done, lost = 0, []
    out.mkdir()
    while True:
        run = after if after is not None and checkpoint_paths(out) else run
        loop = Cut(out, {cut - done for cut in cuts if cut > done})
        learner = Sb3Learner(TrainTask(run, str(out), "cpu", TOTAL, -1), loop)  # type: ignore[arg-type]
        loop.learner = learner
        try:
            newest = loop.checkpoints.latest()
            if newest is None:
                learner.begin()
            else:
                lost.append(learner.restore(newest))
                loop.number = -1 - learner._collecting  # the moment of the cut comes again, after a boundary
            learner.run(loop)  # type: ignore[arg-type]
            assert not learner.is_within
            return learner.learned(finished=False).parameters_sha256, loop.number, lost
        except Killed:
            done += loop.number
        finally:
            learner.close()


@pytest.fixture(autouse=True)
def small_segments(monkeypatch):
    torch.set_num_threads(1)
    monkeypatch.setattr(segments, "WORTH_LINKING", 0)


SLOW = {"PPO light workers": pytest.mark.slow}


@pytest.mark.parametrize("name", [pytest.param(name, marks=SLOW.get(name, ())) for name in RUNS])
def test_cut_anywhere_it_ends_with_the_same_bits(name, tmp_path):
    run = run_of(name)
    whole, moments, _ = trained(run, tmp_path / "whole", set())
    assert moments >= (TOTAL // 2 if "own" not in name else TOTAL // 8)
    cuts = {each for each in (3, 4, 9, 17, 19, 20, 25, 37, moments - 2, moments - 1) if each < moments}
    end, _, lost = trained(run, tmp_path / "cut", cuts)
    assert set(lost) == {""} and len(lost) == len(cuts)
    assert end == whole


KNOBS = [
    pytest.param(
        name, key, marks=[] if key == "memory.rollout" and "picture" in name else pytest.mark.slow, id=f"{name}-{key}"
    )
    for name in ("PPO", "PPO picture", "PPO dict", "PPO lean dict", "MaskablePPO", "MaskablePPO lean picture")
    for key in (*TURNED, "memory.rollout: plain")
    if key != "hyperparams.buffer_size"
]


@pytest.mark.parametrize(("name", "key"), KNOBS)
def test_a_knob_turned_within_a_rollout_or_an_update(name, key, tmp_path):
    run = run_of(name)
    turned = with_settings(run, **TURNED.get(key, {"memory": {"rollout": "plain"}}))
    whole, _, _ = trained(run, tmp_path / "whole", set())
    for cut in (7, 17, 22):  # in the first rollout, at the beginning of its update and in it
        end, _, (lost, *_) = trained(run, tmp_path / f"turned-{cut}", {cut, cut + 1}, after=turned)
        if key.partition(":")[0] in BITS:
            assert (end, lost) == (whole, ""), cut
        elif lost == "":
            assert key in (
                "memory.micro_batch",
                "memory.activation_checkpointing",
                "memory.bf16",
                "hyperparams.batch_size",
            )


def test_of_a_rollout_only_what_is_new_is_written(tmp_path, monkeypatch):
    """If this fails, a rollout of gigabytes is written to the disk again every minute."""
    monkeypatch.setattr(segments, "WORTH_LINKING", 1)
    written: list[list[str]] = []
    write = Checkpoints.write

    def noted(self, *arguments, **more):
        written.append(sorted(name for name in more["files"] if "rows" in name))
        return write(self, *arguments, **more)

    monkeypatch.setattr(Checkpoints, "write", noted)
    trained(run_of("PPO picture"), tmp_path / "run", {5, 9, 13, 18})
    assert written == [[f"rollout-rows-{a:012d}-{b:012d}.bin"] for a, b in ((0, 4), (4, 8), (8, 12), (12, 16))]
    (left,) = checkpoint_paths(tmp_path / "run")
    assert len(list(left.glob("rollout-rows-*"))) == 4
