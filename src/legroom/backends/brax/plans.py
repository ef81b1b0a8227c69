"""The temporaries of a compiled training step as a function of a run's sizes: the larger of two sums.

XLA frees what a step no longer needs, so that a step is fullest at one of two moments:

    collecting  bytes per environment (the physics), and the steps stored so far;
    updating    bytes per sample of a minibatch (activations), and the rollout with its shuffled copy.

What a stored step takes is known from tracing. So XLA is asked about two sizes, one that is fullest at each moment
(`asked_sizes`), and about a run as it is, whose figure is XLA's own. A plan that is shipped was solved from more sizes
and has more terms (`bench/robot_calibrations.py`).

The letters of the terms: N environments, B batch_size, M num_minibatches, U unroll_length; S are the steps that are
stored while it collects: the rollout, and the current unroll where every environment plays several of them; W are the
samples of a minibatch up to 4,096, for which a workspace has its limit of 4 MiB (XLA's `gemm_rewriter.cc`). SAC has no
unroll: there U are the gradient updates of a training step, each of one batch, and M the transitions of its replay.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from legroom.backends.base import hyper
from legroom.backends.brax.facts import is_ppo
from legroom.machine.gpu_table import GPUS, KnownGpu
from legroom.model.run import EvalSpec, Run
from legroom.model.spaces import Data
from legroom.units import MIB

Terms = Mapping[str, float]
EVEN = 64  # a GPU's compiler fuses otherwise where the batch is no multiple of it
BY_NAME = {card.name: card for card in GPUS}
GAP_NBYTES = 2 * MIB  # between buffers of a small program, and workspaces of matrix products
LIMITED = 4096
# Steps of the rollout that are there while PPO updates: its own, and a shuffled copy without what only collecting needs
# (1.74 to 1.85 on six GPUs and the CPU, jaxlib 0.9.2, brax 0.14.2, the robot; 2026-11, `bench/robot_calibrations.py`).
COPIES = 1.8


@dataclass(frozen=True)
class Sizes(Data):
    """The settings that arrays depend on."""

    envs: int
    batch: int = 1
    minibatches: int = 1
    unroll: int = 1
    replay: bool = False  # they are SAC's, see above

    def value(self, term: str) -> float:
        """Return the term's value, 3 × 4 for `BU` of 3 segments of 4 steps."""
        steps = self.batch * self.minibatches * self.unroll
        values = {
            "1": 1, "N": self.envs, "B": self.batch, "M": self.minibatches, "BU": self.batch * self.unroll,
            "BMU": steps, "W": min(self.batch * self.unroll, LIMITED),
            "S": steps + (self.envs * self.unroll if self.batch * self.minibatches > self.envs else 0),
        }  # fmt: skip
        return values[term]

    @property
    def is_even(self) -> bool:
        """Whether a GPU's compiler plans such a batch as those that it was asked about; SAC's are alike."""
        return self.replay or self.batch % EVEN == 0


def asked_sizes(*, replay: bool) -> tuple[Sizes, Sizes]:
    """Return sizes for which a step is fullest while it collects, and while it updates."""
    if replay:
        return Sizes(8192, 16, 2**16, 2, replay=True), Sizes(64, 1024, 2**16, 4, replay=True)
    return Sizes(8192, 256, 32, 2), Sizes(32, 1024, 4, 10)


def solved(collecting: int, updating: int, step_nbytes: int, *, replay: bool) -> list[dict[str, float]]:
    """Return bytes per unit of each term, one sum per moment, for what XLA planned for `asked_sizes`.

    Args:
        step_nbytes: of one stored step of one environment.
    """
    kept = ({"M": 1.0}, {"M": 1.0, "BU": 1.0}) if replay else ({"S": 1.0}, {"BMU": COPIES})
    moments: list[dict[str, float]] = []
    for term, nbytes, steps, sizes in zip(
        ("N", "B" if replay else "BU"), (collecting, updating), kept, asked_sizes(replay=replay), strict=True
    ):
        stored = {name: times * step_nbytes for name, times in steps.items()}
        rest = nbytes - sum(each * sizes.value(name) for name, each in stored.items())
        moments.append({term: max(rest, 0.0) / sizes.value(term), **stored})
    return moments


@dataclass(frozen=True)
class XlaPlan(Data):
    """What XLA plans for one environment with one set of networks on a GPU, or on the CPU.

    GPUs of one generation differ little: a plan serves every GPU of the same compute capability, and others with a
    wider band.
    """

    versions: dict[str, str]
    card: str  # that `asked_sizes` were asked for; empty for the CPU's compiler
    # temporaries of brax's evaluation, per environment; None where it was not asked about yet
    evaluation_nbytes: float | None
    # bytes per unit of each term, one sum per moment that can be the fullest; none: likewise
    moments: list[dict[str, float]]
    # temporaries of runs that it planned as they are, by `asked_key`; of the same compute capability
    asked: dict[str, int]

    @property
    def is_complete(self) -> bool:
        return bool(self.moments) and self.evaluation_nbytes is not None

    @property
    def is_rough(self) -> bool:
        """Whether it was solved from two sizes alone."""
        return all("1" not in moment for moment in self.moments)

    def fullest(self, sizes: Sizes, adjust: Terms = MappingProxyType({})) -> dict[str, float]:
        """Return the bytes of each term at the fullest moment; terms in `adjust` are multiplied."""
        sums = [
            {term: each * adjust.get(term, 1.0) * sizes.value(term) for term, each in moment.items()}
            for moment in self.moments
        ]
        return max(sums, key=lambda each: sum(each.values()))

    def nbytes(self, sizes: Sizes) -> int:
        """Return what the temporaries of a training step need."""
        return round(sum(self.fullest(sizes).values()))

    def is_of(self, card: KnownGpu | None) -> bool:
        """Return whether XLA was asked for the card, or for one of the same compute capability."""
        return card is not None and self.card in BY_NAME and BY_NAME[self.card].capability == card.capability


def asked_key(card: KnownGpu | None, sizes: Sizes) -> str:
    """Return by what a plan keeps the temporaries of sizes that XLA planned as they are for a card."""
    numbers = f"{sizes.envs},{sizes.batch},{sizes.minibatches},{sizes.unroll}"
    return f"{card.name} {numbers}" if card is not None else numbers


def sizes_of(run: Run) -> Sizes:
    """Return the settings that the run's arrays depend on."""
    envs, batch = run.env.n_envs, int(hyper(run, "batch_size"))
    if is_ppo(run):
        return Sizes(envs, batch, int(hyper(run, "num_minibatches")), int(hyper(run, "unroll_length")))
    rows = hyper(run, "max_replay_size") or run.total_timesteps or 1
    return Sizes(envs, batch, int(rows), int(hyper(run, "grad_updates_per_step")), replay=True)


def with_sizes(run: Run, sizes: Sizes, eval_envs: int | None = None) -> Run:
    """Return the run with these sizes."""
    changed: dict[str, Any] = {"batch_size": sizes.batch}
    if is_ppo(run):
        changed |= {"num_minibatches": sizes.minibatches, "unroll_length": sizes.unroll}
    else:
        changed |= {"max_replay_size": sizes.minibatches, "min_replay_size": 0, "grad_updates_per_step": sizes.unroll}
    evaluation = run.eval
    if eval_envs is not None:
        evaluation = (run.eval or EvalSpec()).model_copy(update={"n_envs": eval_envs})
    env = run.env.model_copy(update={"n_envs": sizes.envs})
    return run.replace(hyperparams=run.hyperparams | changed, env=env, eval=evaluation)
