"""Mends what a library would refuse or silently do differently, so that a fitted run satisfies every constraint.

The smallest change: the nearest number of minibatches that brax accepts, the nearest minibatch that divides the
rollout. What has no such mend is an error of the file, which no amount of memory helps.
"""

from dataclasses import dataclass

from legroom.backends.base import backend_of
from legroom.errors import BadInput
from legroom.fitting.changes import differences, with_changes
from legroom.model.footprint import Finding
from legroom.model.plan import Change, Price
from legroom.model.run import Run
from legroom.predicting.constraints import broken_rules


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
        fitter = backend_of(run).fitter
        mended = fitter.mends.get(finding.name, lambda run: None)(run) or _by_its_fix(run, finding)
        if mended is None or len(mends) > 10:
            raise BadInput(finding.message, path=run.source, hint=finding.hint)
        price = fitter.must_hold.get(finding.name, "changes-learning")
        mends.append(Mend(differences(run, mended), price, finding.message))
        run = mended
    return run, mends


def _broken(run: Run) -> list[Finding]:
    also = backend_of(run).fitter.must_hold
    return [each for each in broken_rules(run) if each.severity == "error" or each.name in also]


def _by_its_fix(run: Run, finding: Finding) -> Run | None:
    fix = finding.fix or {}
    if not fix or not all(isinstance(key, str) and "." in key for key in fix):
        return None
    changes = tuple(Change(key, None, value) for key, value in fix.items())
    return with_changes(run, changes)
