"""Every rule, in order of its code: those about runs, wherever they were read, and those about scripts.

The general rules are here, those that know one library are its backend's. A backend's rule with the code of a general
one adds to it: both look, under the general rule's text.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import wraps
from itertools import chain

from legroom.backends.base import Backend, backend_of, backends
from legroom.checking.rules import GENERAL_RUN_RULES, GENERAL_SCRIPT_RULES
from legroom.model.rule import Found, Look, Rule, Subject
from legroom.plugins import plugged_rules


def _of_backend(rule: Rule, backend: Backend) -> Rule:
    """Return the rule as one that sees no runs but those of its backend."""

    @wraps(rule.look)
    def look(subject: Subject) -> Iterable[Found]:
        return rule.look(subject.with_runs(lambda run: backend_of(run) is backend))

    return replace(rule, look=look)


def _both(first: Look, second: Look) -> Look:
    @wraps(first)
    def look(subject: Subject) -> Iterable[Found]:
        return chain(first(subject), second(subject))

    return look


def _by_code(rules: Iterable[Rule]) -> tuple[Rule, ...]:
    table: dict[str, Rule] = {}
    for rule in rules:
        known = table.get(rule.code)
        table[rule.code] = rule if known is None else replace(known, look=_both(known.look, rule.look))
    return tuple(table[code] for code in sorted(table))


RUN_RULES = _by_code([*GENERAL_RUN_RULES, *(_of_backend(rule, b) for b in backends() for rule in b.checker.run_rules)])
SCRIPT_RULES = _by_code([*GENERAL_SCRIPT_RULES, *(rule for b in backends() for rule in b.checker.script_rules)])
# Rules that are gone. To ignore one is still right, and no other rule gets its code.
REMOVED = {
    "LR017": "checkpoint-in-iterations", "LR019": "n-epochs-costs-time", "LR021": "updates-per-iteration",
    "LR022": "schedule-never-completes", "LR023": "sync-stride", "LR053": "untrusted-load",
    "LR059": "tracemalloc-frames", "LR063": "unused-key", "LR064": "interval-in-iterations", "LR065": "trains-nothing",
    "LR070": "schedule-never-completes", "LR071": "sync-stride", "LR074": "live-observation",
    "LR082": "graph-retained", "LR083": "cache-emptied-in-loop", "LR084": "acts-with-gradients",
    "LR085": "evaluates-with-gradients", "LR088": "array-exceeds-memory", "LR089": "replay-exceeds-memory",
    "LR090": "float-frames-stored", "LR091": "next-observations-stored", "LR092": "loader-far-ahead",
    "LR093": "masks-ignored", "LR094": "device-not-used", "LR095": "gradients-never-zeroed", "LR096": "networks-kept",
    "LR097": "transitions-on-card", "LR098": "cache-on-method", "LR099": "anomaly-detection-on",
    "LR100": "collected-in-loop", "LR101": "fragments-miss-batch",
}  # fmt: skip
RULES = (*RUN_RULES, *SCRIPT_RULES, *plugged_rules())
