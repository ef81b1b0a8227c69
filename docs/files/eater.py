"""Keeps a little more with every step: something to watch. About ten seconds."""

import time

kept = []
for _ in range(100):
    kept.append(bytearray(2_000_000))
    time.sleep(0.1)
print("done")
