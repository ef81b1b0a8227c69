"""The command line: one small file per command; `main` is the only place that turns an error into text and a code."""
