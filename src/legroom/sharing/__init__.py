"""Torch-free worker processes (`crew`: the trainer's side, `worker`: the child's), and arrays that all share."""
