"""What XLA plans for a card, kept beside what its CPU compiler said (`calibration`).

States and weights are the same everywhere; the temporaries of a program are what the compiler for that card makes of
it. A plan thus holds the programs alone, marked as those of a calibration are, so that one compilation per kind of
program answers for every setting. It takes the extra `xla-gpu` to ask, none to read.

XLA orders instructions by the sizes of their results, and a marked program is a large one: a run as people train it is
ordered otherwise, and needs up to 10 % more or less. The plans of some settings as they are, on some cards, are
therefore kept with it. They grow as the marked program does, with other bytes per sample of a minibatch, which are
taken from them.

Cards differ little: XLA plans the robot's step for seven cards of six generations within 4 % of each other
(`bench/xla.py`). So a plan serves every card of the same compute capability, and others with a wider band.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from legroom.backends.brax.calibration import (
    VERSION,
    Calibration,
    Checked,
    all_at_once,
    calibration_places,
    kind_of,
    kinds_for,
    parsed,
    remembered,
    sizes_of,
)
from legroom.backends.brax.compiled import ask_compiler
from legroom.backends.brax.pieces import Program, Sizes
from legroom.device.xla_target import PACKAGES, target_text
from legroom.machine.cache import read_json, write_json
from legroom.machine.gpu_table import GPUS, KnownGpu
from legroom.machine.versions import read_versions
from legroom.model.data import Data
from legroom.model.run import Run

Progress = Callable[[str], None]
BY_NAME = {card.name: card for card in GPUS}
SAMPLES = ("BU", "BV", "BW")  # of a minibatch, with a step more or less


@dataclass(frozen=True)
class CardPlan(Data):
    """The programs of a calibration as XLA plans them for a card, and what it plans for some settings as they are.

    Args:
        card: that the programs were marked for.
        checked: by the card's name.
    """

    version: int
    versions: dict[str, str]
    card: str
    programs: dict[str, Program]
    evaluation: Program | None
    checked: dict[str, list[Checked]]

    def in_place_of(self, calibration: Calibration, card: KnownGpu | None) -> Calibration:
        """Return the calibration with the card's programs instead of the CPU's."""
        levels = self._by_likeness(card)
        programs = {kind: _corrected(program, kind, levels) for kind, program in self.programs.items()}
        evaluation, checked = self.evaluation or calibration.evaluation, next(filter(None, levels), [])
        return calibration.model_copy(update={"programs": programs, "evaluation": evaluation, "checked": checked})

    def is_of(self, card: KnownGpu | None) -> bool:
        """Return whether XLA was asked for the card, or for one of the same compute capability."""
        asked = [BY_NAME[name] for name in (self.card, *self.checked) if name in BY_NAME]
        return card is not None and any(each.capability == card.capability for each in asked)

    def exact(self, card: KnownGpu | None, sizes: Sizes) -> int | None:
        """Return the temporaries of a setting that XLA planned as it is for the very card; None: it did not."""
        found = self.checked.get(card.name, []) if card is not None else []
        return next((each.temporaries for each in found if each.sizes == sizes), None)

    def _by_likeness(self, card: KnownGpu | None) -> list[list[Checked]]:
        """Return the settings that were planned for the card, for those of its capability, and for all."""

        def of(alike: Callable[[KnownGpu], bool]) -> list[Checked]:
            return [each for name, found in self.checked.items() if alike(BY_NAME[name]) for each in found]

        if card is None:
            return [of(lambda _: True)]
        same = of(lambda other: other.name == card.name)
        return [same, of(lambda other: other.capability == card.capability), of(lambda _: True)]


def _corrected(program: Program, kind: str, levels: list[list[Checked]]) -> Program:
    """Return the program as it is at the settings of its kind that were planned, on the cards most like the one wanted.

    Where the update is the fullest moment, what was planned beyond the rollout and states are the samples of a
    minibatch: so many bytes for each, at every setting. Elsewhere all terms are multiplied.
    """
    of_kind = [[each for each in checked if kind_of(each.sizes) == kind] for checked in levels]
    checked: list[Checked] = next(filter(None, of_kind), [])
    if not checked:
        return program
    most = max(_samples(piece) for piece in program.pieces)
    others = [piece for piece in program.pieces if _samples(piece) < most / 2]
    updates = Program(tuple(piece for piece in program.pieces if piece not in others))
    kept: dict[str, float] = {}
    each_sample = []
    for one in checked:
        fullest = max(updates.pieces, key=lambda piece: Program((piece,)).nbytes(one.sizes))
        kept = {term: nbytes for term, nbytes in fullest.items() if term not in (*SAMPLES, "1")}
        rest = sum(nbytes * one.sizes.value(term) for term, nbytes in kept.items())
        each_sample.append((one.temporaries - rest) / one.sizes.value("BU"))
    if most and min(each_sample) > 0:
        return Program((*others, {**kept, "BU": median(each_sample)}), program.packing)
    times = median(one.temporaries / max(program.nbytes(one.sizes), 1) for one in checked)
    pieces = tuple({term: times * nbytes for term, nbytes in piece.items()} for piece in program.pieces)
    return Program(pieces, program.packing)


def _samples(piece: dict[str, float]) -> float:
    """Return the bytes per sample of a minibatch at a moment of the program."""
    return sum(piece.get(term, 0.0) for term in SAMPLES)


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
        if plan is not None and plan.version == VERSION:
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


def ask_for_card(
    run: Run, card: KnownGpu, *, progress: Progress = lambda _: None, both: bool = False, place: Path | None = None
) -> CardPlan:
    """Return a plan that knows the run's kind of program and the run as it is on the card, and keep it.

    XLA is asked for what is not known yet; programs of a card of the same compute capability do.

    Args:
        both: ask for the other kind as well, which a table of many settings needs.
        place: the calibration to keep it beside; that of the run on this machine.

    Raises:
        BadInput: brax refuses the run, or XLA cannot compile it for the card.
        MissingExtra: jax or brax is not installed.
    """
    run, places = all_at_once(run), [place] if place is not None else calibration_places(run)
    found = [plan for plan in (find_plan(each, card) for each in places) if plan is not None and plan.is_of(card)]
    empty = CardPlan(VERSION, read_versions(("jaxlib", *PACKAGES)), card.name, {}, None, {})
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

    for kind in kinds_for(run, both=both):
        if kind not in known.programs:
            program = mark(one_unroll=kind == "one", evaluation=False)
            known = keep(known, programs={**known.programs, kind: program})
    if known.evaluation is None:
        known = keep(known, evaluation=mark(one_unroll=False, evaluation=True))
    if known.exact(card, sizes_of(run)) is None:
        more: Any = {"target": target_text(card), "card": card.name, "evaluation": False}
        planned = ask_compiler("plan", run, progress=progress, **more)["temporaries"]
        settings = [*known.checked.get(card.name, []), Checked(sizes_of(run), planned)]
        known = keep(known, checked={**known.checked, card.name: settings})
    return known
