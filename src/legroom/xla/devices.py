"""Devices that XLA compiles for though they are not there; imports jax, so only child processes import this.

Mirrors jax 0.9: `get_topology_desc` asks `canonicalize_platform` for the platform of the plugin, which knows a platform
only where it has a device (jax issues 23971 and 28376).
"""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import jax
from jax._src import xla_bridge
from jax.experimental import topologies
from jax.sharding import SingleDeviceSharding

PLATFORM = "cuda"
POLL_S = 0.2
REPORT = "-memory-usage-report.txt"  # written right after the buffer assignment
ASSIGNMENT = "-buffer-assignment.txt"


def card_sharding(target: str) -> SingleDeviceSharding:
    """Return where arrays are that are on the card; programs lowered for such arrays are compiled for it.

    Args:
        target: the card, as `target.target_text` describes it.
    """
    known = xla_bridge.canonicalize_platform

    def canonicalize(platform: str) -> str:
        return PLATFORM if platform in (PLATFORM, "gpu") else known(platform)

    # stays so: lowering asks again
    patch.object(xla_bridge, "canonicalize_platform", canonicalize).start()
    described = topologies.get_topology_desc(platform=PLATFORM, target_config=target, topology="1x1x1")
    return SingleDeviceSharding(described.devices[0])


def on_card(tree: Any, sharding: SingleDeviceSharding) -> Any:
    """Return the shapes of a tree's arrays, as arrays of the card."""
    make: Any = jax.ShapeDtypeStruct  # which has no annotations
    return jax.tree_util.tree_map(lambda leaf: make(leaf.shape, leaf.dtype, sharding=sharding), tree)


def assignment_file(compile_it: Callable[[], Any], module: str, folder: Path) -> Path:
    """Return where XLA wrote about the buffers of a module, as soon as it has; the compilation is left to itself.

    The optimised module stands beside it: `.txt` in place of ASSIGNMENT.

    Args:
        folder: that `xla_dump_to` names.
    """
    failed: list[BaseException] = []

    def work() -> None:
        try:
            compile_it()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    while True:
        found = sorted(each for each in folder.glob(f"*{REPORT}") if module in each.name)
        if found:
            return Path(str(found[0]).replace(REPORT, ASSIGNMENT))
        if failed:
            raise failed[0]
        if not thread.is_alive():
            raise AssertionError("XLA wrote no buffer assignment")
        time.sleep(POLL_S)
