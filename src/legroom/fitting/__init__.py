"""Make a run fit: the table of knobs and, later, the search over it."""
