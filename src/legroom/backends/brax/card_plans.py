"""What XLA plans for a card, kept beside what its CPU compiler said (`calibration`).

States and weights are the same everywhere; the temporaries of a program are what the compiler for that card makes of
it. A plan thus holds the programs alone, marked as those of a calibration are, so that one compilation per kind of
program answers for every setting. It takes the extra `xla-gpu` to ask, none to read.

What XLA fuses depends on the card, on whether a batch is a multiple of 64 and on whether minibatches are few, but
hardly on sizes otherwise: a program marked with sizes as people train with holds within a few percent for others
(`bench/xla.py`). A setting that XLA planned as it is, for the very card, is met; the others planned are checks.

Cards of one generation differ little. So a plan serves every card of the same compute capability, and others with a
wider band.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from legroom.backends.brax.calibration import (
    KIND,
    Calibration,
    Checked,
    all_at_once,
    calibration_places,
    card_kind_of,
    parsed,
    remembered,
    sizes_of,
)
from legroom.backends.brax.compiled import ask_compiler
from legroom.backends.brax.facts import is_ppo
from legroom.backends.brax.pieces import EVEN, Program, Sizes
from legroom.device.xla_target import PACKAGES, target_text
from legroom.machine.cache import read_json, write_json
from legroom.machine.gpu_table import GPUS, KnownGpu
from legroom.machine.versions import read_versions
from legroom.model.data import Data
from legroom.model.run import Run

Progress = Callable[[str], None]
BY_NAME = {card.name: card for card in GPUS}
PLAN_VERSION = 3  # of the file's form and of how it is made


@dataclass(frozen=True)
class CardPlan(Data):
    """The programs of a calibration as XLA plans them for a card, and what it plans for some settings as they are.

    Args:
        card: that the programs were marked for.
        checked: by the card's name; all of the same compute capability.
    """

    version: int
    versions: dict[str, str]
    card: str
    programs: dict[str, Program]
    evaluation: Program | None
    checked: dict[str, list[Checked]]

    def in_place_of(self, calibration: Calibration) -> Calibration:
        """Return the calibration with the card's programs instead of the CPU's."""
        evaluation = self.evaluation or calibration.evaluation
        checked = [each for found in self.checked.values() for each in found]
        return calibration.model_copy(update={"programs": self.programs, "evaluation": evaluation, "checked": checked})

    def is_of(self, card: KnownGpu | None) -> bool:
        """Return whether XLA was asked for the card, or for one of the same compute capability."""
        return card is not None and BY_NAME[self.card].capability == card.capability

    def exact(self, card: KnownGpu | None, sizes: Sizes) -> int | None:
        """Return the temporaries of a setting that XLA planned as it is for the very card; None: it did not."""
        found = self.checked.get(card.name, []) if card is not None else []
        return next((each.temporaries for each in found if each.sizes == sizes), None)

    def knows(self, sizes: Sizes) -> bool:
        """Return whether XLA was asked about programs of this kind."""
        return card_kind_of(sizes) in self.programs


def find_plan(calibration_file: Path, card: KnownGpu | None) -> CardPlan | None:
    """Return the plan for the card, or else for the card most like it, kept beside a calibration; None: there is none.

    Args:
        card: None where only the memory of the card is known.
    """
    plans = {plan.card: plan for plan in _plans_beside(calibration_file) if plan.card in BY_NAME}
    if not plans or card is None:
        return next(iter(plans.values()), None)
    return min(plans.values(), key=lambda plan: (not plan.is_of(card), _unlike(BY_NAME[plan.card], card)))


def _unlike(one: KnownGpu, other: KnownGpu) -> tuple[bool, float, float]:
    """Return how different two cards are to XLA: the capability first, then how many multiprocessors."""
    capabilities = [each.capability[0] + each.capability[1] / 10 for each in (one, other)]
    processors = sorted((one.multiprocessors, other.multiprocessors))
    return one.name != other.name, abs(capabilities[0] - capabilities[1]), processors[1] / processors[0]


def _plans_beside(calibration_file: Path) -> Iterator[CardPlan]:
    for path in sorted(calibration_file.parent.glob(f"{calibration_file.stem}@*.json")):
        plan = remembered(path, _read_plan)
        if plan is not None and plan.version == PLAN_VERSION:
            yield plan


def _read_plan(path: Path) -> CardPlan | None:
    try:
        data = read_json(path)
        checked = {
            card: [Checked(Sizes(**each["sizes"]), each["temporaries"]) for each in settings]
            for card, settings in data["checked"].items()
        }
        plan: CardPlan | None = parsed({**data, "checked": []}, CardPlan)
    except (KeyError, TypeError, AttributeError):
        return None
    return None if plan is None else plan.model_copy(update={"checked": checked})


def plan_file(calibration_file: Path, card: KnownGpu) -> Path:
    """Return where the plan of a card is kept."""
    slug = re.sub(r"[^a-z0-9]+", "-", card.name.lower())
    return calibration_file.with_name(f"{calibration_file.stem}@{slug}.json")


def _kinds_for(run: Run, *, all_kinds: bool) -> list[str]:
    """Return the kinds of program to ask for: the run's own, or all whose batch is a multiple of 64."""
    if not all_kinds:
        return [card_kind_of(sizes_of(run))]
    if not is_ppo(run):
        return [*KIND.values()]
    return [f"{unrolls} {minibatches} {EVEN}" for unrolls in KIND.values() for minibatches in ("few", "lots")]


def ask_for_card(
    run: Run, card: KnownGpu, *, progress: Progress = lambda _: None, all_kinds: bool = False, place: Path | None = None
) -> CardPlan:
    """Return a plan that knows the run's kind of program and the run as it is on the card, and keep it.

    XLA is asked for what is not known yet; programs of a card of the same compute capability do.

    Args:
        all_kinds: ask for the other kinds as well, which a table of many settings needs.
        place: the calibration to keep it beside; that of the run on this machine.

    Raises:
        BadInput: brax refuses the run, or XLA cannot compile it for the card.
        MissingExtra: jax or brax is not installed.
    """
    run, places = all_at_once(run), [place] if place is not None else calibration_places(run)
    found = [plan for plan in (find_plan(each, card) for each in places) if plan is not None and plan.is_of(card)]
    empty = CardPlan(PLAN_VERSION, read_versions(("jaxlib", *PACKAGES)), card.name, {}, None, {})
    known = found[0] if found else empty
    file = plan_file(places[0], BY_NAME[known.card])

    def keep(plan: CardPlan, **update: Any) -> CardPlan:
        plan = plan.model_copy(update=update)
        write_json(file, plan.model_dump())
        return plan

    def mark(**what: Any) -> Program:
        on = BY_NAME[known.card]
        answer = ask_compiler("mark", run, progress=progress, target=target_text(on), card=on.name, **what)
        return Program(tuple(answer["pieces"]), answer["packing"])

    for kind in _kinds_for(run, all_kinds=all_kinds):
        if kind not in known.programs:
            words = kind.split()
            even = int(words[-1]) if words[-1].isdigit() else EVEN
            program = mark(one_unroll="one" in words, few="few" in words, even=even, evaluation=False)
            known = keep(known, programs={**known.programs, kind: program})
    if known.evaluation is None:
        known = keep(known, evaluation=mark(one_unroll=False, few=True, even=EVEN, evaluation=True))
    if known.exact(card, sizes_of(run)) is None:
        more: Any = {"target": target_text(card), "card": card.name, "evaluation": False}
        planned = ask_compiler("plan", run, progress=progress, **more)["temporaries"]
        settings = [*known.checked.get(card.name, []), Checked(sizes_of(run), planned)]
        known = keep(known, checked={**known.checked, card.name: settings})
    return known
