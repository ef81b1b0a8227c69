"""Every rule, in order of its code: those about runs, wherever they were read, and those about scripts."""

from __future__ import annotations

from legroom.checking.rule import Rule
from legroom.checking.rules.runs import RUN_RULES
from legroom.checking.rules.scripts import SCRIPT_RULES

RULES: tuple[Rule, ...] = (*RUN_RULES, *SCRIPT_RULES)
