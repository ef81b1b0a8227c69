"""What packages of workloads and of backends build on: the nouns of the seam, errors, and a few tools.

    from legroom.extend import BadInput, Workload, share
    from legroom.extend import Algorithm, Backend, BackendPredictor, Item, Knob, Learner, State

Everything here is part of legroom's public interface. The reference workloads (`legroom_workloads`) import nothing else
of legroom, which `make lint` checks. Importing this module imports nothing heavy: errors are here at once, since every
environment raises them in its worker process, and all else on first use.
"""

# ruff: noqa: F401  (type checkers read these imports)

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

# The public names that are not imported above, and where they are. Type checkers read the imports.
_MODULES = {
    "legroom.backends.base": "Backend BackendChecker BackendFitter BackendPredictor BackendReader BackendTrainer"
    " algorithm_of hyper",
    "legroom.fitting.changes": "with_settings",
    "legroom.machine.cache": "cache_folder",
    "legroom.model.evidence": "Evidence",
    "legroom.model.facts": "Algorithm spaces_of",
    "legroom.model.footprint": "Finding Footprint Item Phase Place",
    "legroom.model.learner": "Evaluation Learned Learner Loop SavedState State Status TrainTask",
    "legroom.model.plan": "Growth Knob",
    "legroom.model.rule": "Found Rule",
    "legroom.model.run": "Run Spaces",
    "legroom.model.spaces": "BoxSpace DiscreteSpace KnownSpaces",
    "legroom.model.workload": "Extractor Net Recomputed Workload WorkloadOption convolutions linear mlp",
    "legroom.predicting.predict": "footprint_of",
    "legroom.reading.user_files": "read_text",
    "legroom.reading.yamls": "Key Lines parse_yaml",
    "legroom.sharing.shared": "share shares",
}
_LAZY = {name: module for module, names in _MODULES.items() for name in names.split()}
_AT_ONCE = ["EXIT_BAD_INPUT", "EXIT_GOOD", "BadInput", "LegroomError", "MissingExtra", "lazy_exports"]
__all__ = sorted([*_AT_ONCE, *_LAZY])
if not TYPE_CHECKING:  # a checker would take any name for one of ours
    __getattr__ = lazy_exports(__name__, _LAZY)
