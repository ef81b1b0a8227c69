"""What rules share: how they look at the runs of a file or at its script, its limits, and the words they use.

A rule about runs looks run by run, and only where what it needs is known.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache, wraps
from pathlib import Path
from types import ModuleType
from typing import Any

from legroom.backends.base import backend_of
from legroom.errors import BadInput
from legroom.model.facts import Counts
from legroom.model.rule import Found, Key, Look, Rule, Subject, SubjectRun
from legroom.reading.interpreter.script import Script
from legroom.units import format_size

N_ENVS: Key = ("env", "n_envs")
N_STEPS: Key = ("hyperparams", "n_steps")
BATCH_SIZE: Key = ("hyperparams", "batch_size")
ROLLOUT = (N_ENVS, N_STEPS)
TOTAL: Key = ("total_timesteps",)
GENERAL = Path(__file__).parent / "rules" / "rules.toml"


def run_rule(
    code: str, *, needs: Iterable[Key] = (), guessed: bool = False
) -> Callable[[Callable[[Subject, SubjectRun], Iterable[Found]]], Rule]:
    """Return the decorator of a rule that looks at the runs of a subject, one by one.

    Args:
        needs: keys the rule cannot do without; a run of which one is not known is passed over.
        guessed: look also at runs of which nobody says the algorithm.
    """
    needed = tuple(needs)

    def rule(look: Callable[[Subject, SubjectRun], Iterable[Found]]) -> Rule:
        @wraps(look)
        def look_at_all(subject: Subject) -> Iterator[Found]:
            for one in (*subject.runs, *(subject.guessed if guessed else ())):
                if not all(one.knows(*key) for key in needed):
                    continue
                try:
                    found = list(look(subject, one))
                except BadInput:  # the spaces are not known, and this rule wanted them
                    continue
                yield from (replace(each, run=one.run.name) for each in found)

        return _rule("run", code, look_at_all)

    return rule


def script_rule(code: str) -> Callable[[Callable[[Script], Iterable[Found]]], Rule]:
    """Return the decorator of a rule that is asked about Python files."""

    def rule(look: Callable[[Script], Iterable[Found]]) -> Rule:
        @wraps(look)
        def look_at_script(subject: Subject) -> Iterable[Found]:
            return () if subject.script is None else look(subject.script)

        return _rule("script", code, look_at_script)

    return rule


def subject_rule(kind: str, code: str) -> Callable[[Look], Rule]:
    """Return the decorator of a rule that looks at a subject as a whole."""
    return lambda look: _rule(kind, code, look)


def _rule(kind: str, code: str, look: Look) -> Rule:
    """Return the rule with its texts, of `rules.toml` beside its module or of the general rule that it adds to."""
    beside = Path(str(sys.modules[look.__module__].__file__)).with_name("rules.toml")
    return Rule(code, look=look, **(_texts(beside)[kind].get(code) or _texts(GENERAL)[kind][code]))


@cache
def _texts(file: Path) -> Mapping[str, Any]:
    return tomllib.loads(file.read_text(encoding="utf-8"))


def rules_in(*modules: ModuleType) -> tuple[Rule, ...]:
    found = (each for module in modules for each in vars(module).items())
    return tuple(rule for _, rule in found if isinstance(rule, Rule))


def callbacks_are_its_own(subject: Subject) -> bool:
    """Return whether callbacks of the file are its run's for certain; among several models, nobody knows whose."""
    return subject.kind != "script" or len(subject.runs) == 1


def counts_known(one: SubjectRun) -> Counts | None:
    """Return the backend's counts; None where it has none, or a number that they depend on is not known."""
    found = backend_of(one.run).checker.counts(one.run) if one.knows("env", "n_envs") else None
    return found if found and all(one.knows("hyperparams", name) for name in found.depends_on) else None


def ram_limit(subject: Subject) -> int | None:
    budget = subject.budget
    return None if budget.ram is None else budget.usable(budget.ram)


def of_ram(subject: Subject) -> str:
    """Return the RAM in the words of its origin: `32.0 GiB of RAM (given)`."""
    assert subject.budget.ram is not None
    kept = f" less {subject.budget.reserve:.0%} reserve" if subject.budget.reserve else ""
    origin = f" ({subject.budget.ram_origin})" if subject.budget.ram_origin else ""
    return f"{format_size(subject.budget.ram)} of RAM{kept}{origin}"


def of_vram(subject: Subject) -> str:
    """Return the GPU memory in the words of its origin: `16.0 GiB (free on a RTX 4080)`."""
    assert subject.budget.vram is not None
    origin = f" ({subject.budget.vram_origin})" if subject.budget.vram_origin else ""
    return f"{format_size(subject.budget.vram)}{origin}"
