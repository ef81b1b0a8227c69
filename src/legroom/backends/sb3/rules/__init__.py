"""Rules about runs of this backend, one module each; the table is `checking.rules.runs`."""
