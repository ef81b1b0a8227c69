"""Torch-free worker processes: an SB3 VecEnv whose workers import numpy, gymnasium and the environment, nothing else.

`vec_env` is the trainer's side and knows SB3; `worker` and everything it imports are the child's side and must not.
`shared` gives all processes of a run the same read-only arrays.
"""
