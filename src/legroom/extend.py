"""What packages of workloads and of backends build on: the nouns of the seam, errors, and a few tools.

    from legroom.extend import BadInput, Workload, share
    from legroom.extend import Algorithm, Backend, BackendPredictor, Item, Knob, Learner, State

Everything here is part of legroom's public interface. The reference workloads (`legroom_workloads`) import nothing else
of legroom, which `make lint` checks. Importing this module imports nothing heavy: errors are here at once, since every
environment raises them in its worker process, and all else on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from legroom.errors import EXIT_BAD_INPUT, EXIT_GOOD, BadInput, LegroomError, MissingExtra
from legroom.extras import lazy_exports

if TYPE_CHECKING:
    from legroom.backends.base import (
        Backend,
        BackendChecker,
        BackendFitter,
        BackendPredictor,
        BackendReader,
        BackendTrainer,
        algorithm_of,
        hyper,
    )
    from legroom.fitting.changes import with_settings
    from legroom.machine.cache import cache_folder
    from legroom.model.evidence import Evidence
    from legroom.model.facts import Algorithm, spaces_of
    from legroom.model.footprint import Finding, Footprint, Item, Phase, Place
    from legroom.model.learner import Evaluation, Learned, Learner, Loop, SavedState, State, Status, TrainTask
    from legroom.model.plan import Growth, Knob
    from legroom.model.rule import Found, Rule
    from legroom.model.run import Run, Spaces
    from legroom.model.spaces import BoxSpace, DiscreteSpace, KnownSpaces
    from legroom.model.workload import Extractor, Net, Recomputed, Workload, WorkloadOption, convolutions, linear, mlp
    from legroom.predicting.predict import footprint_of
    from legroom.reading.user_files import read_text
    from legroom.reading.yamls import Key, Lines, parse_yaml
    from legroom.sharing.shared import share, shares

__all__ = [
    "EXIT_BAD_INPUT", "EXIT_GOOD", "Algorithm", "Backend", "BackendChecker", "BackendFitter",
    "BackendPredictor", "BackendReader", "BackendTrainer", "BadInput", "BoxSpace", "DiscreteSpace", "Evaluation",
    "Evidence", "Extractor", "Finding", "Footprint", "Found", "Growth", "Item", "Key", "Knob", "KnownSpaces", "Learned",
    "Learner", "LegroomError", "Lines", "Loop", "MissingExtra", "Net", "Phase", "Place", "Recomputed", "Rule", "Run",
    "SavedState",
    "Spaces", "State", "Status", "TrainTask", "Workload", "WorkloadOption", "algorithm_of", "cache_folder",
    "convolutions", "footprint_of", "hyper", "lazy_exports", "linear", "mlp", "parse_yaml", "read_text", "share",
    "shares", "spaces_of", "with_settings",
]  # fmt: skip

_LAZY = {
    **dict.fromkeys(("Backend", "BackendChecker", "BackendFitter", "BackendPredictor"), "legroom.backends.base"),
    **dict.fromkeys(("BackendReader", "BackendTrainer", "algorithm_of", "hyper"), "legroom.backends.base"),
    "with_settings": "legroom.fitting.changes",
    "cache_folder": "legroom.machine.cache",
    "Algorithm": "legroom.model.facts",
    "Evidence": "legroom.model.evidence",
    "spaces_of": "legroom.model.facts",
    "Finding": "legroom.model.footprint",
    **dict.fromkeys(("Footprint", "Item", "Phase", "Place"), "legroom.model.footprint"),
    **dict.fromkeys(("Growth", "Knob"), "legroom.model.plan"),
    **dict.fromkeys(("Net", "Recomputed", "convolutions", "linear", "mlp"), "legroom.model.workload"),
    **dict.fromkeys(
        ("Evaluation", "Learned", "Learner", "Loop", "SavedState", "State", "Status"), "legroom.model.learner"
    ),
    **dict.fromkeys(("Found", "Rule"), "legroom.model.rule"),
    **dict.fromkeys(("Run", "Spaces"), "legroom.model.run"),
    **dict.fromkeys(("BoxSpace", "DiscreteSpace", "KnownSpaces"), "legroom.model.spaces"),
    **dict.fromkeys(("Extractor", "Workload", "WorkloadOption"), "legroom.model.workload"),
    "TrainTask": "legroom.model.learner",
    "footprint_of": "legroom.predicting.predict",
    "read_text": "legroom.reading.user_files",
    **dict.fromkeys(("Key", "Lines", "parse_yaml"), "legroom.reading.yamls"),
    **dict.fromkeys(("share", "shares"), "legroom.sharing.shared"),
}
if not TYPE_CHECKING:  # a checker would take any name for one of ours
    __getattr__ = lazy_exports(__name__, _LAZY)
