"""What `legroom check` knows about brax: in its runs, and in scripts that use it."""

from legroom.backends.brax.rules import runs, scripts
from legroom.checking.rule_helpers import rules_in

RUN_RULES = rules_in(runs)
SCRIPT_RULES = rules_in(scripts)
