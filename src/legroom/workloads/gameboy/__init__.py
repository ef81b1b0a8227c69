"""A Game Boy fighter on PyBoy (PPO on stacked colour frames)."""
