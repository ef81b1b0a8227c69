"""Level data that is meant to be shared."""

import numpy as np


class LevelDataCache:
    _cache = {}

    @classmethod
    def get(cls, level):
        if level not in cls._cache:
            cls._cache[level] = np.load(f"level_{level}.npy")
        return cls._cache[level]
