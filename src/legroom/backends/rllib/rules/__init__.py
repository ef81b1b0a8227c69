"""What `legroom check` knows about RLlib, one module per rule; those called `script_…` look at source code."""

from legroom.backends.rllib.rules import script_fragments, script_minibatch, script_minibatch_rest

SCRIPT_RULES = (script_minibatch.RULE, script_minibatch_rest.RULE, script_fragments.RULE)  # LR006, LR007, LR101
