"""Torch-free worker processes (`crew` is the trainer's side, `worker` the child's), and arrays that all of them have."""
