"""Stable-Baselines3 and sb3-contrib: all that knows them."""
