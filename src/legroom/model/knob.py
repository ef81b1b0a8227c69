"""Knobs and growth: what fitting may turn of a run, downwards to make it fit and upwards to use what is free.

A backend gives both. *free*: bit-equal results, and no slower. *slower*: the same mathematics, to the bit or up to
rounding (1e-6 per update). *changes-learning*: anything else, however harmless.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from legroom.model.evidence import Evidence
from legroom.model.plan import Price
from legroom.model.run import Run

Exact = Literal["bits", "rounding", ""]


@dataclass(frozen=True)
class Knob:
    """One setting that memory depends on, with its price.

    Args:
        key: the setting it turns, by its name in the run file; the first of them where it turns several.
        say: what it does and what it costs, for the person who reads the plan.
        ladder: its settings for a run, from the least turned to the most; none where it does nothing.
        exact: whether results stay equal to the bit, up to rounding, or not.
        probed_price: what it costs a run, as a probe of the environment tells; None where no probe decides.
        also: keys that it turns instead of `key` in runs of other algorithms.
        counted: whether predictions show what it saves.
        starts_over: whether what was learned before it was turned is of no use after: no retreat turns it.
    """

    key: str
    price: Price
    exact: Exact
    say: str
    ladder: Callable[[Run, Evidence], Iterator[Run]]
    probed_price: Callable[[Run, Evidence], Price] | None = None
    also: tuple[str, ...] = ()
    counted: bool = True
    starts_over: bool = False

    @property
    def asks_probe(self) -> bool:
        """Whether its price depends on what a probe of the environment measures."""
        return self.probed_price is not None

    @property
    def unprobed_price(self) -> Price:
        """What it costs a run of which nothing was measured."""
        return "slower" if self.asks_probe else self.price

    def price_for(self, run: Run, evidence: Evidence) -> Price:
        """Return what it costs this run."""
        return self.price if self.probed_price is None else self.probed_price(run, evidence)


@dataclass(frozen=True)
class Growth:
    """One way to use free memory, which changes what is learned.

    Args:
        say: what grows, and what that is good for.
        larger: the run with it so many times as large; None where that is past what is sensible.
        bound: what limits it besides memory, for the person who reads the plan.
    """

    say: str
    larger: Callable[[float], Run | None]
    bound: str = ""
