"""A check as a document: totals against the hardware, findings by priority, what is fine and why; and as JSON.

Code scanning gets SARIF (OASIS, 2.1.0); a path in it is relative to where the command runs, as GitHub wants it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from legroom import __version__
from legroom.model.footprint import Finding
from legroom.model.rule import Checked, Rule, Totals
from legroom.model.verdict import Budget
from legroom.rendering.document import Document, Note, Part, Table, verdict
from legroom.units import format_fine_size, format_size, plural

_STYLES = {"error": "bold red", "warning": "yellow", "info": "cyan"}
_TITLES = {
    "error": "Errors: it will not run, or will not fit",
    "warning": "Warnings: it will not do what it seems to",
    "info": "Worth knowing",
}
SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_SARIF = {"error": "error", "warning": "warning", "info": "note"}
MOST_ALIKE = 3  # findings of one rule in one file that are shown one by one; a zoo file has a hundred entries
MOST_TOTALS = 3
_NOT_JUDGED = {"not understood": "not understood", "no training": "without training"}


def check_json(checked: Sequence[Checked]) -> dict[str, Any]:
    """Return the findings of all files and a summary of each."""
    return {
        "findings": [finding.as_json() for each in checked for finding in each.findings],
        "not_understood": sum(each.understanding.kind == "not understood" for each in checked),
        "summary": [each.summary() for each in checked],
    }


def check_document(checked: Sequence[Checked], budget: Budget, *, everything: bool = False) -> Document:
    """How many findings there are, then file by file; a file without findings is a line.

    Args:
        everything: also what is fine, and why.
    """
    if not checked:
        return Document("", Note("No training found."), ())
    return Document("", _verdict(checked), ["", *_files(checked, budget, everything=everything)])


def _files(checked: Sequence[Checked], budget: Budget, *, everything: bool) -> Iterator[Part]:
    several = len(checked) > 1
    for each in checked:
        if each.kind == "skipped":
            yield Note(f"skipped {each.note}", "dim")
        elif not several or each.findings:
            yield from _file(each, budget, everything=everything)
            yield ""
        elif each.understanding.kind != "no training":
            plain = each.understanding.kind == "understood" and not each.understanding.text
            text = "no findings" if plain else each.understanding.text
            yield Note(f"{each.path}: {text}", "green" if plain else "dim")


def _file(checked: Checked, budget: Budget, *, everything: bool) -> Iterator[Part]:
    kind = checked.kind if checked.kind in ("constants", "script") else f"{checked.kind} file"
    yield Note(f"{checked.path} ({kind}{_runs(checked)})", "bold")
    if checked.said:
        yield Note(f"  {checked.said}", "dim")
    for severity in ("error", "warning", "info"):
        findings = [finding for finding in checked.findings if finding.severity == severity]
        if findings:
            yield ""
            yield Note(_TITLES[severity], _STYLES[severity])
            yield from _findings(findings)
    for totals in checked.totals[:MOST_TOTALS] if len(checked.totals) <= MOST_TOTALS else ():
        yield ""
        yield from _totals(totals, budget)
    if checked.fine and not everything:
        yield ""
        yield Note(f"{plural(len(checked.fine), 'check')} passed; --all says why", "dim")
    elif checked.fine:
        yield ""
        yield Note("What is fine, and why", "green")
        for what, why in checked.fine:
            yield f"  {what}: {why}"
    if checked.ignored:
        yield ""
        yield Note(f"{plural(checked.ignored, 'finding')} suppressed by comments", "dim")


def _runs(checked: Checked) -> str:
    return f", {len(checked.totals):,} runs" if len(checked.totals) > 1 else ""


def _totals(totals: Totals, budget: Budget) -> Iterator[Part]:
    yield f"{totals.name}: {totals.title}"
    table = Table(["", "", ""], "lrw")
    if totals.samples is not None:
        table.add("  samples per iteration", f"{totals.samples:,}", "")
    if totals.updates is not None:
        table.add("  updates per iteration", f"{totals.updates:,}", "gradient steps")
    if totals.iterations is not None:
        table.add("  iterations", f"{totals.iterations:,}", f"{totals.steps:,} environment steps run")
    if totals.stored is not None:
        copy = f"{format_fine_size(totals.flattened)} {totals.flattened_when}" if totals.flattened else ""
        table.add("  stored data", format_fine_size(totals.stored), copy)
    if totals.host is not None:
        table.add("  host peak", format_fine_size(totals.host), _against(totals.host, totals.host_high, budget, "ram"))
    if totals.gpu is not None:
        table.add("  GPU peak", format_fine_size(totals.gpu), _against(totals.gpu, totals.gpu_high, budget, "vram"))
    if table.rows:
        yield table
    if totals.host is None:
        yield Note("  no prediction: the spaces, or sizes that memory depends on, are not known (--like RUN)", "dim")


def _against(nbytes: int, high: int | None, budget: Budget, which: str) -> str:
    limit: int | None = getattr(budget, which)
    band = f"up to {format_fine_size(high)}" if high else ""
    if limit is None:
        return band
    origin = getattr(budget, f"{which}_origin")
    name = "RAM" if which == "ram" else "GPU memory"
    said = f" ({origin})" if origin else ""
    return f"{band}; {nbytes / limit:.0%} of {format_size(limit)} {name}{said}"


def _findings(findings: Sequence[Finding]) -> Iterator[Part]:
    shown: dict[str, int] = {}
    counts = {f.code: sum(g.code == f.code for g in findings) for f in findings}
    for finding in findings:
        shown[finding.code] = shown.get(finding.code, 0) + 1
        if finding.severity == "info" and shown[finding.code] > MOST_ALIKE:
            if shown[finding.code] == counts[finding.code]:
                rest = counts[finding.code] - MOST_ALIKE
                yield Note(f"  {finding.code} {finding.name}: {rest:,} more like these (--json has all)", "dim")
            continue
        where = f"line {finding.line}, " if finding.line is not None else ""
        yield Note(f"  {where}{finding.code} {finding.name}", _STYLES[finding.severity])
        yield f"    {finding.message}"
        if finding.hint:
            yield f"    → {finding.hint}"
        if finding.fix:
            yield Note(f"    --fix: {finding.fix['say']}", "dim")


def _verdict(checked: Sequence[Checked]) -> Note:
    findings = [finding for each in checked for finding in each.findings]
    counts = {kind: sum(f.severity == kind for f in findings) for kind in ("error", "warning", "info")}
    files = plural(sum(each.kind != "skipped" for each in checked), "file")
    kinds: list[str] = [each.understanding.kind for each in checked if each.kind != "skipped" and not each.findings]
    others = "".join(f", {kinds.count(k):,} {name}" for k, name in _NOT_JUDGED.items() if kinds.count(k))
    if not findings:
        judged = len(kinds) > sum(kinds.count(k) for k in _NOT_JUDGED)
        return verdict(f"no findings in {files}{others}" if judged else f"{files}{others}", "green" if judged else "")
    parts = [plural(counts["error"], "error"), plural(counts["warning"], "warning")]
    text = f"{', '.join(parts)}, {counts['info']:,} worth knowing in {files}{others}"
    return verdict(text, "bold red" if counts["error"] else "yellow" if counts["warning"] else "green")


def fixes_text(
    made: Sequence[tuple[str, Sequence[Any], str]], checked: Sequence[Checked], *, dry_run: bool
) -> Iterator[Part]:
    """Yield what --fix changed, or would, and what it leaves; a dry run shows the difference line by line."""
    for path, fixes, difference in made:
        for fix in fixes:
            yield Note(f"{'would fix' if dry_run else 'fixed'} {path}:{fix.line}: {fix.say}", "green")
        if dry_run:
            yield _verbatim((line, _diff_style(line)) for line in difference.splitlines())
    left = [finding for each in checked for finding in each.findings if not finding.fix and finding.severity != "info"]
    if left:
        rules = ", ".join(dict.fromkeys(f"{finding.code} {finding.name}" for finding in left))
        yield Note(f"not fixed: {plural(len(left), 'finding')} that only you can decide ({rules})", "yellow")
    elif not made:
        yield "nothing to fix"
    yield ""


def rule_text(rule: Any) -> Iterator[Part]:
    """Yield all that a rule says about itself."""
    yield Note(f"{rule.code} {rule.name} ({rule.severity})", "bold")
    for title, text in (("What", rule.what), ("Why", rule.why), ("Way out", rule.remedy)):
        yield ""
        yield Note(title, "bold")
        yield f"  {text}"
    yield ""
    yield Note("Example", "bold")
    yield _verbatim((f"  {line}", "") for line in rule.example.splitlines())


def rules_text(rules: Sequence[Any]) -> Iterator[Part]:
    table = Table(["code", "rule", "is", "what it finds"], "lllw")
    by_code = {rule.code: rule for rule in reversed(rules)}  # scripts have rules of their own for some codes
    for _, rule in sorted(by_code.items()):
        table.add(rule.code, rule.name, Note(rule.severity, _STYLES[rule.severity]), rule.what)
    yield table


def _verbatim(lines: Iterable[tuple[str, str]]) -> Table:
    """Return lines with their styles that are drawn as they are, spaces and length included."""
    table = Table([""], "v")
    for line, style in lines:
        table.add(line, style=style)
    return table


def _diff_style(line: str) -> str:
    if line.startswith(("+++", "---")):
        return "bold"
    return {"+": "green", "-": "red"}.get(line[:1], "")


def sarif_text(checked: Sequence[Checked], rules: Iterable[Rule]) -> str:
    """Return the findings as one run of a SARIF log; all rules are described, so that a result can point to its own."""
    known = list(rules)
    numbers = {rule.code: number for number, rule in enumerate(known)}
    driver = {
        "name": "legroom", "version": __version__, "rules": [_rule(rule) for rule in known],
    }  # fmt: skip
    results = [_result(finding, numbers) for finding in (finding for each in checked for finding in each.findings)]
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


def _relative(path: str | None) -> str:
    """Return a path below the working directory without what leads there, with slashes; others as they are."""
    if not path:
        return "."
    try:
        return Path(path).resolve().relative_to(Path.cwd()).as_posix()
    except ValueError:
        return Path(path).as_posix()
