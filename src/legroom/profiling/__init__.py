"""What one environment costs while it is stepped: leaks, observations, parallel copies of it.

The environment lives in a fresh child process (`child`), so that nothing of ours is in its memory and a crash of it is
one line. The parent imports neither NumPy nor gymnasium.
"""
