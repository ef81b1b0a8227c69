"""Mends what a library would refuse or silently do differently, so that a fitted run satisfies every constraint.

The smallest change: the nearest number of minibatches that brax accepts, the nearest minibatch that divides the
rollout. What has no such mend is an error of the file, which no amount of memory helps.
"""

from __future__ import annotations

from dataclasses import dataclass

from legroom.backends.sb3.stored import rollout_samples
from legroom.errors import BadInput
from legroom.fitting.ladders_learning import divisors_below
from legroom.fitting.settings import differences, with_changes, with_settings
from legroom.model.constraints import broken_rules
from legroom.model.finding import Finding
from legroom.model.plan import Change, Price
from legroom.model.run import Run

# SB3 only warns about these two, and trains on; a fitted run does what it says.
MUST_HOLD = ("minibatch-does-not-divide", "minibatch-exceeds-rollout")
SAME_NUMBERS = ("minibatch-exceeds-rollout",)  # SB3 takes the whole rollout then; the mend only says so


@dataclass(frozen=True)
class Mend:
    """One rule mended: what changed, what that costs, and the rule's own sentence."""

    changes: tuple[Change, ...]
    price: Price
    say: str


def breaks_rules(run: Run) -> bool:
    """Return whether the library would refuse the run, or cut its last minibatch short."""
    return bool(_broken(run))


def repaired(run: Run) -> tuple[Run, list[Mend]]:
    """Return the run with what breaks a rule mended, and the mends.

    Raises:
        BadInput: a broken rule has no mechanical mend.
    """
    mends: list[Mend] = []
    while findings := _broken(run):
        finding = findings[0]
        mended = _mended(run, finding)
        if mended is None or len(mends) > 10:
            raise BadInput(finding.message, path=run.source, hint=finding.hint)
        price: Price = "free" if finding.name in SAME_NUMBERS else "changes-learning"
        mends.append(Mend(differences(run, mended), price, finding.message))
        run = mended
    return run, mends


def _broken(run: Run) -> list[Finding]:
    return [each for each in broken_rules(run) if each.severity == "error" or each.name in MUST_HOLD]


def _mended(run: Run, finding: Finding) -> Run | None:
    if finding.name == "minibatch-does-not-divide":
        whole, size = rollout_samples(run), run.hyperparams.get("batch_size", 64)
        least = 2 if whole > 1 else 1
        sizes = [n for n in (whole, *divisors_below(whole)) if n >= least]
        nearest = min(sizes, key=lambda n: (abs(n - size), n))
        return with_settings(run, hyperparams={"batch_size": nearest})
    fix = finding.fix or {}
    if not fix or not all(isinstance(key, str) and "." in key for key in fix):
        return None
    changes = tuple(Change(key, None, value) for key, value in fix.items())
    return with_changes(run, changes)
