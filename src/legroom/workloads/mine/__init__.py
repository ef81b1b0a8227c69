"""Open-pit mining: which block of the deposit to dig next (3D CNN, MaskablePPO)."""

from legroom.lazily import lazy_exports

__getattr__ = lazy_exports(__name__, {"Cnn3d": "legroom.workloads.mine.nets"})
