"""What there is to run on: `probe()` reads this machine's memory, container limit, GPUs and library versions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from legroom.extras import lazy_exports

if TYPE_CHECKING:
    from legroom.machine.probing import probe as probe
else:  # on first use: `limits`, which every command imports, needs none of the nouns
    __getattr__ = lazy_exports(__name__, {"probe": "legroom.machine.probing"})
