"""Findings for other programs: annotations of GitHub's workflows, and SARIF for code scanning.

SARIF is that of OASIS, 2.1.0; a path is relative to where the command runs, as GitHub wants it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from legroom import __version__
from legroom.model.checked import Checked
from legroom.model.finding import Finding
from legroom.model.rule import Rule

SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_GITHUB = {"error": "error", "warning": "warning", "info": "notice"}
_SARIF = {"error": "error", "warning": "warning", "info": "note"}


def github_text(checked: Sequence[Checked]) -> str:
    """Return a workflow command per finding, which GitHub shows at its line."""
    return "\n".join(_github(finding) for finding in _all(checked)) or "legroom: no findings"


def _github(finding: Finding) -> str:
    properties = {"file": _relative(finding.path), "line": finding.line, "title": f"{finding.code} {finding.name}"}
    given = ",".join(f"{key}={_escaped(str(value), more=':,')}" for key, value in properties.items() if value)
    return f"::{_GITHUB[finding.severity]} {given}::{_escaped(_message(finding))}"


def _escaped(text: str, more: str = "") -> str:
    for letter in ("%", "\r", "\n", *more):
        text = text.replace(letter, f"%{ord(letter):02X}")
    return text


def sarif_text(checked: Sequence[Checked], rules: Iterable[Rule]) -> str:
    """Return the findings as one run of a SARIF log; all rules are described, so that a result can point to its own."""
    known = list(rules)
    numbers = {rule.code: number for number, rule in enumerate(known)}
    driver = {
        "name": "legroom", "version": __version__, "rules": [_rule(rule) for rule in known],
    }  # fmt: skip
    results = [_result(finding, numbers) for finding in _all(checked)]
    log = {
        "$schema": SARIF_SCHEMA,
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}],
    }
    return json.dumps(log, indent=2)


def _rule(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.code, "name": rule.name, "shortDescription": {"text": rule.what},
        "fullDescription": {"text": rule.why}, "help": {"text": rule.remedy},
        "defaultConfiguration": {"level": _SARIF[rule.severity]},
    }  # fmt: skip


def _result(finding: Finding, numbers: dict[str, int]) -> dict[str, Any]:
    location: dict[str, Any] = {"artifactLocation": {"uri": quote(_relative(finding.path))}}
    if finding.line is not None:
        location["region"] = {"startLine": max(finding.line, 1)}
    known = {"ruleIndex": numbers[finding.code]} if finding.code in numbers else {}
    return {
        "ruleId": finding.code, **known, "level": _SARIF[finding.severity], "message": {"text": _message(finding)},
        "locations": [{"physicalLocation": location}],
    }  # fmt: skip


def _message(finding: Finding) -> str:
    return f"{finding.message} ({finding.hint})" if finding.hint else finding.message


def _all(checked: Sequence[Checked]) -> Iterator[Finding]:
    return (finding for each in checked for finding in each.findings)


def _relative(path: str | None) -> str:
    """Return a path below the working directory without what leads there, with slashes; others as they are."""
    if not path:
        return "."
    try:
        return Path(path).resolve().relative_to(Path.cwd()).as_posix()
    except ValueError:
        return Path(path).as_posix()
