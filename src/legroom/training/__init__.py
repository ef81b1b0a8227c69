"""Training: the folder of a run, its supervised child process, and the checkpoints it leaves behind.

Named here is what other rooms take from `backends`; it is imported on first use.
"""

from legroom.lazily import lazy_exports

__all__ = ["export_sb3", "import_sb3"]

__getattr__ = lazy_exports(
    __name__,
    {"export_sb3": "legroom.backends.sb3_archive", "import_sb3": "legroom.backends.sb3_archive"},
)
