"""The general rules of `legroom check`, one module each; `checking.rule_table` joins them with the backends'."""
