"""What `legroom check` knows about RLlib, one module per rule; those called `script_…` look at source code."""

from legroom.backends.rllib.rules import script_minibatch, script_minibatch_rest

SCRIPT_RULES = (script_minibatch.RULE, script_minibatch_rest.RULE)  # LR006, LR007
