"""Predict the memory of a run: a bill of items, one module per part of the run."""

from legroom.lazily import lazy_exports

__getattr__ = lazy_exports(__name__, {"predict": "legroom.predicting.predict", "MODES": "legroom.predicting.predict"})
