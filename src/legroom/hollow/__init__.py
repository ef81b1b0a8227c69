"""What a card does with any program, on tensors without bytes.

Also loaded into the user's own interpreter, where it is called `legroom_hollow`: Python 3.9, torch 2.3, NumPy and
nothing of legroom; neighbours are imported relatively.
"""
