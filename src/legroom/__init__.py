"""legroom makes reinforcement-learning training fit the machine you have."""
