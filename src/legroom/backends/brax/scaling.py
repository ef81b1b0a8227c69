"""What the compilers' words mean for one run, also where its very networks or knobs were never compiled.

The physics of an environment are the same; what differs are the networks' weights and activations, or a knob whose
effect is arithmetic. Such a prediction has a wider band, and `predict --mode trace` asks about the run as it is.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from legroom.backends.brax.arithmetic import FLOAT, count_parameters, hidden_layers
from legroom.backends.brax.calibration import (
    Calibration,
    calibration_places,
    find_calibration,
    find_plan,
    find_relative,
    read_plan,
)
from legroom.backends.brax.facts import is_ppo
from legroom.backends.brax.plans import Plan, Sizes, Step, sizes_of
from legroom.device.xla_target import known_card
from legroom.model.machine import Gpu
from legroom.model.run import Run


@dataclass(frozen=True)
class Known:
    """A calibration and a plan as they hold for one run.

    Args:
        step: of the plan.
        scaled: they are another run's, or a knob is turned.
        activations: times the plan's own.
        chunk: how many environments the physics' temporaries are of; None: all.
        stepwise: the networks go over the unroll one step at a time (remat).
        same_card: XLA was asked for the card, or for one of the same compute capability.
        planned: the temporaries, where XLA planned the very run for the very card.
    """

    calibration: Calibration
    plan: Plan
    step: Step
    weights_nbytes: int
    targets_nbytes: int
    optimizer_nbytes: int
    scaled: bool = False
    activations: float = 1.0
    chunk: int | None = None
    stepwise: bool = False
    same_card: bool = False
    planned: int | None = None

    def temporaries(self, sizes: Sizes) -> dict[str, float]:
        """Return the bytes of each term at the fullest moment of the training step."""
        if self.scaled:
            return self.step.fullest(sizes, self._adjusted(sizes))
        terms = self.step.fullest(sizes)
        times = 1.0 if self.planned is None else self.planned / max(sum(terms.values()), 1.0)
        return {term: times * nbytes for term, nbytes in terms.items()}

    def evaluation_nbytes(self, envs: int) -> int:
        """Return what the evaluation's temporaries need."""
        at_once = min(envs, self.chunk) if self.chunk else envs
        return round((self.plan.evaluation_nbytes or 0.0) * at_once)

    def _adjusted(self, sizes: Sizes) -> dict[str, float]:
        """Return what each term is multiplied by: of a minibatch all but its data, of the physics all but states."""
        minibatch, physics = (max(each.get(term, 0.0) for each in self.step.moments) for term in ("BU", "N"))
        data = min(self.calibration.transition_nbytes, minibatch)
        state = min(self.calibration.env_state_nbytes, physics)
        kept = self.activations / sizes.unroll if self.stepwise else self.activations
        at_once = min(self.chunk / sizes.envs, 1.0) if self.chunk else 1.0
        return {
            "BU": (data + kept * (minibatch - data)) / minibatch if minibatch else 1.0,
            **dict.fromkeys(("B", "P"), self.activations),  # of SAC, whose updates come one after the other
            "N": (state + at_once * (physics - state)) / physics if physics else 1.0,
        }


def calibration_of_env(run: Run) -> Calibration | None:
    """Return what is kept about the run's environment, with whatever networks; None where no compiler planned it."""
    own, relative = find_calibration(run), find_relative(run)
    if own is not None and _cpu_plan(calibration_places(run)) is not None:
        return own
    return relative[0] if relative is not None and _cpu_plan([relative[3]]) is not None else None


def _cpu_plan(files: list[Path]) -> Plan | None:
    """Return the complete plan of the CPU's compiler that is kept beside one of the calibrations."""
    return next((plan for plan in map(read_plan, files) if plan is not None and plan.step is not None), None)


def known_of(run: Run) -> Known | None:
    """Return what the CPU's compiler said, as it holds for this run; None where it never planned its environment."""
    own, chunk = find_calibration(run), run.memory.env_chunk
    plan = _cpu_plan(calibration_places(run))
    if own is not None and plan is not None and plan.step is not None:
        chunked = chunk is not None and chunk < run.env.n_envs
        weights = own.weights_nbytes, own.targets_nbytes, own.optimizer_nbytes
        planned = plan.exact("", sizes_of(run))
        return Known(own, plan, plan.step, *weights, scaled=chunked, chunk=chunk, planned=planned)
    relative = find_relative(run)
    if relative is None:
        return None
    calibration, policy, remat, file = relative
    plan = _cpu_plan([file])
    if plan is None or plan.step is None:
        return None
    other = run.replace(policy=run.policy.model_copy(update={"kwargs": policy}))
    trained, targets = count_parameters(run)
    before = count_parameters(other)[0]
    return Known(
        calibration,
        plan,
        plan.step,
        # arithmetic counts what it knows of; the ratio also holds for what it does not
        round(calibration.weights_nbytes * trained / before),
        targets * FLOAT,
        round(calibration.optimizer_nbytes * trained / before),
        scaled=True,
        activations=_units(run) / _units(other),
        chunk=chunk,
        stepwise=bool(run.memory.activation_checkpointing) and not remat and is_ppo(run),
    )


def known_for(run: Run, gpu: Gpu | None) -> Known | None:
    """Return the same for a card: as XLA plans it for that card, or for one like it, where it was asked.

    Args:
        gpu: None where only the memory of the card is known.
    """
    known = known_of(run)
    if known is None:
        return None
    card = None if gpu is None else known_card(gpu)
    relative = find_relative(run)
    files = calibration_places(run) if find_calibration(run) is not None else [] if relative is None else [relative[3]]
    plans = [plan for plan in (find_plan(file, card) for file in files) if plan is not None and plan.step is not None]
    plan = min(plans, key=lambda each: not each.is_of(card), default=None)  # asked here, shipped, or of another card
    if plan is None or plan.step is None:
        return replace(known, planned=None)
    planned = None if card is None else plan.exact(card.name, sizes_of(run))
    return replace(known, plan=plan, step=plan.step, same_card=plan.is_of(card), planned=planned)


def _units(run: Run) -> int:
    return sum(sum(layers) for layers in hidden_layers(run))
