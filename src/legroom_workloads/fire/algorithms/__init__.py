"""Algorithms that SB3 does not have, made from SB3's own: Double DQN with prioritized replay over sets of actions."""
