"""Baseline files: findings that a project has already, so that a check tells of new ones only.

A finding is known again by its file, its rule and its message without figures: what is above it may move, and a figure
of its message may change. As many as the baseline has are left out; one more of the same is new.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from legroom.cli.writing import check_writable, write_text
from legroom.errors import BadInput
from legroom.model.footprint import Finding
from legroom.model.rule import Checked
from legroom.rendering.console import JSON_VERSION

_NUMBER = re.compile(r"\d[\d,._]*")
Known = tuple[str, str, str]


def write_baseline(file: Path, checked: Sequence[Checked], *, force: bool) -> int:
    """Write the findings of a check; return how many.

    Raises:
        BadInput: the file cannot be written.
    """
    check_writable("--write-baseline", file, force=force)
    counts = Counter(_known(finding, file) for each in checked for finding in each.findings)
    entries = [{"path": p, "rule": r, "message": m, "count": n} for (p, r, m), n in sorted(counts.items())]
    write_text("--write-baseline", file, json.dumps({"legroom": JSON_VERSION, "findings": entries}, indent=2) + "\n")
    return counts.total()


def without_known(checked: Sequence[Checked], file: Path) -> tuple[list[Checked], int]:
    """Return the check without the findings that the baseline has, and how many those are.

    Raises:
        BadInput: the file cannot be read.
    """
    left, new, dropped = _read(file), [], 0
    for each in checked:
        findings = []
        for finding in each.findings:
            key = _known(finding, file)
            if left[key] > 0:
                left[key] -= 1
                dropped += 1
            else:
                findings.append(finding)
        new.append(replace(each, findings=tuple(findings)))
    return new, dropped


def _known(finding: Finding, file: Path) -> Known:
    path = Path(finding.path or "").resolve()
    try:
        name = path.relative_to(file.resolve().parent).as_posix()
    except ValueError:
        name = path.as_posix()
    return name, finding.code, _NUMBER.sub("#", finding.message)


def _read(file: Path) -> Counter[Known]:
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        return Counter({(e["path"], e["rule"], e["message"]): int(e["count"]) for e in data["findings"]})
    except OSError as error:
        hint = f"legroom check . --write-baseline {file}"
        raise BadInput(f"--baseline: {error.strerror}", path=file, hint=hint) from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise BadInput("--baseline: not a baseline", path=file, hint="write it with --write-baseline") from None
