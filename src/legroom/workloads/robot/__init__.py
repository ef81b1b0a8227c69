"""A walking biped, thousands at once on one accelerator (MJX, brax PPO)."""
