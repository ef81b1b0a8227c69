"""What `legroom check` knows about SB3: in its runs, and in scripts that use it."""

from legroom.backends.sb3.rules import memory, script_callbacks, script_workers, settings
from legroom.checking.rule_helpers import rules_in

RUN_RULES = rules_in(memory, settings)
SCRIPT_RULES = rules_in(script_callbacks, script_workers)
