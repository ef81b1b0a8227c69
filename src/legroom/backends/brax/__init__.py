"""brax: the only modules, besides the robot itself, that import jax and brax.

They know brax's internals (release 0.14.2): its training epoch is captured from its own `train()` instead of being
written again, so that what is predicted, compiled and trained is brax's own code. Nothing is imported here: whoever
only asks for arithmetic must not load jax.
"""
