"""Picks the implementation of `Store`: the C core, or the NumPy reference where the core could not be built.

Both store the same bytes and read each other's dumps; the reference is slower, and says so once.
`LEGROOM_CORE=numpy` picks the reference on purpose.
"""

import os
import warnings

if os.environ.get("LEGROOM_CORE") == "numpy":
    IS_NATIVE = False
else:
    try:
        from legroom.storing._core import Store, block_sums, gather, gather_ring

        IS_NATIVE = True
    except ImportError as error:
        IS_NATIVE = False
        warnings.warn(
            f"lean storage runs on NumPy, which is slower, since its C core could not be loaded ({error}); "
            "reinstall legroom with a C compiler",
            RuntimeWarning,
            stacklevel=2,
        )

if not IS_NATIVE:
    from legroom.storing.reference import Store, block_sums, gather, gather_ring  # type: ignore[assignment]

__all__ = ["IS_NATIVE", "Store", "block_sums", "gather", "gather_ring"]
