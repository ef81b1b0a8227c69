"""What is known of a run whose very networks or knobs were never compiled, from a run of the same environment.

The physics are the same; what differs are the networks' weights and activations, or a knob whose effect is arithmetic.
Such a prediction has a wider band, and `predict --mode trace` asks the compiler about the run as it is.
"""

from dataclasses import dataclass, replace

from legroom.backends.brax.arithmetic import FLOAT, count_parameters, hidden_layers
from legroom.backends.brax.calibration import (
    Calibration,
    calibration_places,
    find_calibration,
    find_relative,
    sizes_of,
)
from legroom.backends.brax.card_plans import CardPlan, find_plan
from legroom.backends.brax.facts import is_ppo
from legroom.backends.brax.pieces import Sizes
from legroom.device.xla_target import known_card
from legroom.model.machine import Gpu
from legroom.model.run import Run

MINIBATCH_TERM, PHYSICS_TERM = "BU", "N"


@dataclass(frozen=True)
class Scaled:
    """A calibration as it holds for one run; `scaled` where it is another run's.

    Args:
        activations: times the calibration's own.
        chunk: how many environments the physics' temporaries are of; None: all.
        stepwise: the networks go over the unroll one step at a time (remat).
        plan: what XLA plans for a card, whose programs the calibration then has; None: they are the CPU's.
        same_card: XLA was asked for the card, or for one of the same compute capability.
        planned: the temporaries, where XLA planned the very run for the very card.
    """

    calibration: Calibration
    weights_nbytes: int
    targets_nbytes: int
    optimizer_nbytes: int
    scaled: bool = False
    activations: float = 1.0
    chunk: int | None = None
    stepwise: bool = False
    plan: CardPlan | None = None
    same_card: bool = False
    planned: int | None = None

    def temporaries(self, sizes: Sizes) -> dict[str, float]:
        """Return the bytes of each term at the fullest moment of the training step."""
        if not self.scaled:
            terms = self.calibration.temporaries(sizes)
            times = 1.0 if self.planned is None else self.planned / max(sum(terms.values()), 1.0)
            return {term: times * nbytes for term, nbytes in terms.items()}
        return self.calibration.temporaries(sizes, adjust=self._adjusted(sizes))

    def evaluation_nbytes(self, envs: int) -> int:
        """Return what the evaluation's temporaries need."""
        program = self.calibration.evaluation
        if program is None:  # as the training's physics, which does the same and more
            return round(self.calibration.temporaries(Sizes(envs)).get(PHYSICS_TERM, 0.0))
        return program.nbytes(Sizes(min(envs, self.chunk) if self.chunk else envs))

    def _adjusted(self, sizes: Sizes) -> dict[str, float]:
        """Return what each term is multiplied by: of a minibatch all but its data, of the physics all but states."""
        known = self.calibration
        minibatch, physics = (known.largest(term) for term in (MINIBATCH_TERM, PHYSICS_TERM))
        data, state = min(known.transition_nbytes, minibatch), min(known.env_state_nbytes, physics)
        kept = self.activations / sizes.unroll if self.stepwise else self.activations
        at_once = min(self.chunk / sizes.envs, 1.0) if self.chunk else 1.0
        samples = (data + kept * (minibatch - data)) / minibatch if minibatch else 1.0
        return {
            **dict.fromkeys((MINIBATCH_TERM, "BV", "BW"), samples),  # also with a step more or less
            PHYSICS_TERM: (state + at_once * (physics - state)) / physics if physics else 1.0,
        }


def calibration_of_env(run: Run) -> Calibration | None:
    """Return what the compiler said about the run's environment, with whatever networks."""
    own = find_calibration(run)
    if own is not None and own.programs:
        return own
    relative = find_relative(run)
    return None if relative is None else relative[0]


def known_for(run: Run, gpu: Gpu | None) -> Scaled | None:
    """Return the same for a card: with the programs as XLA plans them for it, or for one like it, where it was asked.

    Args:
        gpu: None where only the memory of the card is known.
    """
    known = known_of(run)
    if known is None:
        return None
    card = None if gpu is None else known_card(gpu)
    relative = find_relative(run)
    files = calibration_places(run) if find_calibration(run) is not None else [] if relative is None else [relative[3]]
    plans = [plan for plan in (find_plan(file, card) for file in files) if plan is not None]
    plan = min(plans, key=lambda each: not each.is_of(card), default=None)  # asked here, shipped, or of another card
    if plan is None or not plan.programs:
        return known
    calibration = plan.in_place_of(known.calibration)
    planned = plan.exact(card, sizes_of(run))
    return replace(known, calibration=calibration, plan=plan, same_card=plan.is_of(card), planned=planned)


def known_of(run: Run) -> Scaled | None:
    """Return what the compiler's words mean for this run, None where it never said anything about its environment."""
    own, chunk = find_calibration(run), run.memory.env_chunk
    if own is not None and own.programs:
        chunked = chunk is not None and chunk < run.env.n_envs
        return Scaled(
            own, own.weights_nbytes, own.targets_nbytes, own.optimizer_nbytes, scaled=chunked, chunk=chunk
        )  # fmt: skip
    relative = find_relative(run)
    if relative is None:
        return None
    calibration, policy, remat, _ = relative
    other = run.replace(policy=run.policy.model_copy(update={"kwargs": policy}))
    trained, targets = count_parameters(run)
    before = count_parameters(other)[0]
    return Scaled(
        calibration,
        # arithmetic counts what it knows of; the ratio also holds for what it does not
        round(calibration.weights_nbytes * trained / before),
        targets * FLOAT,
        round(calibration.optimizer_nbytes * trained / before),
        scaled=True,
        activations=_units(run) / _units(other),
        chunk=chunk,
        stepwise=bool(run.memory.activation_checkpointing) and not remat and is_ppo(run),
    )


def _units(run: Run) -> int:
    return sum(sum(layers) for layers in hidden_layers(run))
