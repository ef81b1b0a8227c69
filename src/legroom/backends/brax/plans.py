"""The memory of a compiled training step as a function of a run's sizes: the largest of a few sums, one per moment.

XLA frees what a step no longer needs, so that a step is fullest at one of three moments, each a sum of terms:

    collecting  bytes per environment (the physics), and per step stored so far;
    updating    bytes per sample of a minibatch (activations; workspaces of matrix products up to a limit), and per
                step of the rollout and its shuffled copy;
    whatever the sizes: workspaces, counters.

XLA is asked about a few sizes as they are, for each moment as many as it has terms, and between them all is linear.
That is right within a few percent (`bench/xla.py`); a run that was asked about as it is has XLA's own figure.

The letters of the terms: N environments, B batch_size, M num_minibatches, U unroll_length; S are the steps that are
stored while it collects: the rollout, and the current unroll where every environment plays several of them; W are the
samples of a minibatch up to 4,096, for which a workspace has its limit of 4 MiB (XLA's `gemm_rewriter.cc`). SAC has no
unroll: there U are the gradient updates of a training step, each of one batch, and M the transitions of its replay. XLA
leaves out the loop around a single update, which is another program: R are the M of a step of several updates, Q and P
the M and B of a step of one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType

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
ALONE = 0.02  # where the update explains what was asked while collecting that well, collecting is never the fullest


@dataclass(frozen=True)
class Sizes(Data):
    """The settings that arrays depend on.

    Args:
        replay: they are SAC's, see above.
    """

    envs: int
    batch: int = 1
    minibatches: int = 1
    unroll: int = 1
    replay: bool = False

    def value(self, term: str) -> float:
        """Return the term's value, 3 × 4 for `BU` of 3 segments of 4 steps."""
        steps = self.batch * self.minibatches * self.unroll
        values = {
            "1": 1, "N": self.envs, "B": self.batch, "M": self.minibatches, "BU": self.batch * self.unroll,
            "BMU": steps, "W": min(self.batch * self.unroll, LIMITED),
            "R": self.minibatches if self.unroll > 1 else 0, "Q": self.minibatches if self.unroll == 1 else 0,
            "P": self.batch if self.unroll == 1 else 0,
            "S": steps + (self.envs * self.unroll if self.batch * self.minibatches > self.envs else 0),
        }  # fmt: skip
        return values[term]

    @property
    def is_asked(self) -> bool:
        """Whether a GPU's compiler plans such a batch as those that it was asked about; SAC's are alike."""
        return self.replay or self.batch % EVEN == 0


@dataclass(frozen=True)
class FullestMoment:
    """When a step may be fullest: the terms of its sum, and as many sizes for which no other moment is fuller."""

    terms: tuple[str, ...]
    asked: tuple[Sizes, ...]


def _replay(envs: int, batch: int, rows: int, updates: int) -> Sizes:
    return Sizes(envs, batch, rows, updates, replay=True)


_ROWS = 2**16
UPDATING = FullestMoment(
    ("1", "BU", "W", "BMU"),
    (Sizes(32, 256, 8, 10), Sizes(32, 256, 4, 10), Sizes(32, 1024, 4, 10), Sizes(32, 64, 8, 10)),
)
COLLECTING = FullestMoment(("1", "N", "S"), (Sizes(8192, 256, 32, 2), Sizes(2048, 64, 32, 2), Sizes(8192, 256, 32, 6)))
ALWAYS = FullestMoment(("1",), (Sizes(32, 64, 2, 2),))
UPDATING_SAC = FullestMoment(
    ("1", "B", "BU", "R"),
    tuple(_replay(64, *each) for each in ((256, _ROWS, 4), (1024, _ROWS, 4), (1024, _ROWS, 16), (256, 4 * _ROWS, 4))),
)
UPDATING_ONCE_SAC = FullestMoment(
    ("1", "P", "Q"), tuple(_replay(64, *each, 1) for each in ((256, _ROWS), (1024, _ROWS), (256, 4 * _ROWS)))
)
COLLECTING_SAC = FullestMoment(
    ("1", "N", "M"),
    tuple(_replay(envs, 16, rows, 2) for envs, rows in ((8192, _ROWS), (2048, _ROWS), (2048, 4 * _ROWS))),
)


def moments_of(*, replay: bool) -> tuple[FullestMoment, ...]:
    """Return the moments at which a training step may be fullest."""
    return (UPDATING_SAC, UPDATING_ONCE_SAC, COLLECTING_SAC) if replay else (UPDATING, COLLECTING, ALWAYS)


@dataclass(frozen=True)
class StepPlan(Data):
    """The temporaries of a compiled training step.

    Args:
        moments: bytes per unit of each term, one sum per moment that can be the fullest.
    """

    moments: tuple[dict[str, float], ...]

    def fullest(self, sizes: Sizes, adjust: Terms = MappingProxyType({})) -> dict[str, float]:
        """Return the bytes of each term at the fullest moment; terms in `adjust` are multiplied."""
        sums = [
            {term: each * adjust.get(term, 1.0) * sizes.value(term) for term, each in moment.items()}
            for moment in self.moments
        ]
        return max(sums, key=lambda each: sum(each.values()))

    def nbytes(self, sizes: Sizes) -> int:
        """Return what its temporaries need."""
        return round(sum(self.fullest(sizes).values()))


def solved(asked: Mapping[Sizes, int], *, replay: bool) -> StepPlan:
    """Return the step whose temporaries XLA planned so for the sizes that `moments_of` names."""
    found: list[dict[str, float]] = []
    for moment in moments_of(replay=replay):
        real = [asked[sizes] for sizes in moment.asked]
        if found and all(
            abs(StepPlan((found[0],)).nbytes(sizes) - nbytes) < ALONE * nbytes
            for sizes, nbytes in zip(moment.asked, real, strict=True)
        ):
            continue
        rows = [[sizes.value(term) for term in moment.terms] for sizes in moment.asked]
        solution = zip(moment.terms, _solution(rows, real), strict=True)
        # less per sample of a small minibatch than of a large one is possible
        found.append({term: each if term == "W" else max(each, 0.0) for term, each in solution})
    return StepPlan(tuple(found))


def _solution(rows: Sequence[Sequence[float]], right: Sequence[float]) -> list[float]:
    """Return what solves a square system of linear equations, by elimination: there are four at most."""
    left = [[*row, value] for row, value in zip(rows, right, strict=True)]
    for at in range(len(left)):
        best = max(range(at, len(left)), key=lambda row: abs(left[row][at]))
        left[at], left[best] = left[best], left[at]
        left[at] = [each / left[at][at] for each in left[at]]
        for row in range(len(left)):
            if row != at:
                factor = left[row][at]
                left[row] = [each - factor * by for each, by in zip(left[row], left[at], strict=True)]
    return [row[-1] for row in left]


@dataclass(frozen=True)
class Asked(Data):
    """Sizes that XLA was asked about as they are, and the bytes of its temporaries."""

    sizes: Sizes
    temporaries: int


@dataclass(frozen=True)
class XlaPlan(Data):
    """What XLA plans for one environment with one set of networks, as far as it was asked.

    Cards of one generation differ little: a plan serves every card of the same compute capability, and others with a
    wider band.

    Args:
        card: that the sizes of `moments_of` were asked for; empty for the CPU's compiler.
        evaluation_nbytes: temporaries of brax's evaluation, per environment; None where it was not asked about.
        asked: by the card's name; all of the same compute capability.
    """

    versions: dict[str, str]
    card: str
    evaluation_nbytes: float | None
    asked: dict[str, list[Asked]]

    @cached_property
    def step(self) -> StepPlan | None:
        """The training step; None where not all was asked that tells."""
        known = {each.sizes: each.temporaries for each in self.asked.get(self.card, [])}
        replay = any(sizes.replay for sizes in known)
        complete = all(sizes in known for moment in moments_of(replay=replay) for sizes in moment.asked)
        return solved(known, replay=replay) if complete else None

    def is_of(self, card: KnownGpu | None) -> bool:
        """Return whether XLA was asked for the card, or for one of the same compute capability."""
        return card is not None and self.card in BY_NAME and BY_NAME[self.card].capability == card.capability

    def exact(self, card: str, sizes: Sizes) -> int | None:
        """Return the temporaries of sizes that XLA planned as they are for the very card; None: it did not."""
        return next((each.temporaries for each in self.asked.get(card, []) if each.sizes == sizes), None)

    def with_answer(self, card: str, sizes: Sizes, temporaries: int) -> "XlaPlan":
        """Return the plan with one answer more."""
        return replace(self, asked={**self.asked, card: [*self.asked.get(card, []), Asked(sizes, temporaries)]})


def sizes_of(run: Run) -> Sizes:
    """Return the settings that the run's arrays depend on."""
    envs, batch = run.env.n_envs, int(hyper(run, "batch_size"))
    if is_ppo(run):
        return Sizes(envs, batch, int(hyper(run, "num_minibatches")), int(hyper(run, "unroll_length")))
    rows = hyper(run, "max_replay_size") or run.total_timesteps or 1
    return Sizes(envs, batch, int(rows), int(hyper(run, "grad_updates_per_step")), replay=True)


def with_sizes(run: Run, sizes: Sizes, eval_envs: int | None = None) -> Run:
    """Return the run with these sizes."""
    hyperparams = dict(run.hyperparams, batch_size=sizes.batch)
    if is_ppo(run):
        hyperparams.update(num_minibatches=sizes.minibatches, unroll_length=sizes.unroll)
    else:
        hyperparams.update(max_replay_size=sizes.minibatches, min_replay_size=0, grad_updates_per_step=sizes.unroll)
    evaluation = run.eval
    if eval_envs is not None:
        evaluation = (run.eval or EvalSpec()).model_copy(update={"n_envs": eval_envs})
    env = run.env.model_copy(update={"n_envs": sizes.envs})
    return run.replace(hyperparams=hyperparams, env=env, eval=evaluation)
