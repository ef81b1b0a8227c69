"""The general rules of `legroom check`, by what they look at; `checking.rule_table` joins them with the backends'."""

from legroom.checking.rule_helpers import rules_in
from legroom.checking.rules import loops, runs, scripts

GENERAL_RUN_RULES = rules_in(runs)
GENERAL_SCRIPT_RULES = rules_in(scripts, loops)
