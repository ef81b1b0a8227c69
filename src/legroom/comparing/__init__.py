"""Two versions of a file: what the change does to memory, and which value does it."""
