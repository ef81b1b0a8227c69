"""A platformer with many environments side by side (PPO on two frames and a state vector)."""
