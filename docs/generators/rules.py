"""A page per rule of `legroom check`, from its texts."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping

from docs.generators.markdown import code, table, tree

from legroom.checking.rule_table import RULES, RUN_RULES
from legroom.model.rule import Rule

MEANING = {
    "error": "it will not run, or not as it says",
    "warning": "it will not do what it says",
    "info": "worth knowing",
}
WHERE = {"runs": "run files and whatever a run is read from", "scripts": "Python scripts, by their syntax"}


def pages() -> Mapping[str, str]:
    by_code: dict[str, list[Rule]] = {}
    for rule in RULES:
        by_code.setdefault(rule.code, []).append(rule)
    texts = {f"rules/{code_}.md": _page(same) for code_, same in by_code.items()}
    return {**texts, "rules/index.md": _index(by_code)}


def _page(same: list[Rule]) -> str:
    parts = [f"# {same[0].code} {same[0].name}\n"]
    for rule in same:
        kind = _kind(rule)
        if len(same) > 1:
            parts.append(f"## In {'scripts' if kind == 'scripts' else 'run files'}\n")
        language = "python" if kind == "scripts" else "yaml"
        mended = "yes, where it is certain what to write" if mends(rule) else "no"
        parts += [
            f"**{rule.what}**\n",
            table(
                ["severity", "looks at", "`--fix`", "silence a line with"],
                [
                    (
                        f"{rule.severity}: {MEANING[rule.severity]}",
                        WHERE[kind],
                        mended,
                        f"`# legroom: ignore[{rule.code}]`",
                    )
                ],
            ),
            f"Why: {rule.why}\n",
            "What it finds:\n",
            code(rule.example, language if kind == "scripts" or ":" in rule.example else "text"),
            f"What to do: {rule.remedy}\n",
        ]
    parts.append(f"The same in the terminal: `legroom check --rule {same[0].code}`.\n")
    return "\n".join(parts)


def mends(rule: Rule) -> bool:
    """Return whether the rule makes fixes."""
    return re.search(r"\bfix\b", inspect.getsource(inspect.unwrap(rule.look))) is not None


def _kind(rule: Rule) -> str:
    return "runs" if any(rule is each for each in RUN_RULES) else "scripts"


def _index(by_code: Mapping[str, list[Rule]]) -> str:
    rows = []
    for code_, same in by_code.items():
        looks = ", ".join(_kind(rule) for rule in same)
        fix = "yes" if any(mends(rule) for rule in same) else ""
        rows.append((f"[{code_}]({code_}.md)", same[0].name, same[0].severity, looks, fix, same[0].what))
    return (
        f"# Rules of check\n\n`legroom check` knows {len(by_code)} rules. A rule that is not sure stays silent. "
        "`--select` and `--ignore` take codes and names.\n\n"
        + table(["code", "name", "severity", "looks at", "fix", "what"], rows)
        + "\n"
        + tree(*by_code)
    )
