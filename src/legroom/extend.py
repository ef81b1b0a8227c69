"""What packages of workloads build on: the declaration of a workload, errors, and a few tools.

    from legroom.extend import BadInput, Workload, share

Everything here is part of legroom's public interface. The reference workloads (`legroom_workloads`) import nothing else
of legroom, which `make lint` checks. Importing this module imports nothing heavy: errors are here at once, since every
environment raises them in its worker process, and all else on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from legroom.errors import EXIT_BAD_INPUT, EXIT_GOOD, BadInput, LegroomError, MissingExtra
from legroom.lazily import lazy_exports

if TYPE_CHECKING:
    from legroom.machine.cache import cache_folder
    from legroom.model.layers import Net, Recomputed, convolutions, linear, mlp
    from legroom.model.run import Run, Spaces
    from legroom.model.spaces import BoxSpace, DiscreteSpace
    from legroom.model.workload import Extractor, Workload, WorkloadOption
    from legroom.reading.user_files import read_text
    from legroom.reading.yamls import Key, Lines, parse_yaml
    from legroom.sharing.shared import share, shares

__all__ = [
    "EXIT_BAD_INPUT", "EXIT_GOOD", "BadInput", "BoxSpace", "DiscreteSpace", "Extractor", "Key", "LegroomError", "Lines",
    "MissingExtra", "Net", "Recomputed", "Run", "Spaces", "Workload", "WorkloadOption", "cache_folder", "convolutions",
    "lazy_exports", "linear", "mlp", "parse_yaml", "read_text", "share", "shares",
]  # fmt: skip

_LAZY = {
    **dict.fromkeys(("Extractor", "Workload", "WorkloadOption"), "legroom.model.workload"),
    **dict.fromkeys(("Net", "Recomputed", "convolutions", "linear", "mlp"), "legroom.model.layers"),
    **dict.fromkeys(("Run", "Spaces"), "legroom.model.run"),
    **dict.fromkeys(("BoxSpace", "DiscreteSpace"), "legroom.model.spaces"),
    "cache_folder": "legroom.machine.cache",
    "read_text": "legroom.reading.user_files",
    **dict.fromkeys(("Key", "Lines", "parse_yaml"), "legroom.reading.yamls"),
    **dict.fromkeys(("share", "shares"), "legroom.sharing.shared"),
}
if not TYPE_CHECKING:  # a checker would take any name for one of ours
    __getattr__ = lazy_exports(__name__, _LAZY)
