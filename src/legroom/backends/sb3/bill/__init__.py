"""Parts of the bill of an SB3 run, one module each."""
