"""Growth of memory, of a program's environment or of a tree of processes: one way to fit a trend, one verdict."""
