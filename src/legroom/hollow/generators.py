"""Random number generators of a hollow card: a generator of the CPU's kind each, that says it is the card's."""

from __future__ import annotations

from typing import Any

import torch

from .card import nothing
from .dispatching import Follower

_Base: Any = torch.Generator


def install(follower: Follower) -> None:
    """Let `torch.Generator(device="cuda")` be made, and each card have its own."""

    class Like(type(_Base)):  # type: ignore[misc]
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, _Base)

    class CardGenerator(_Base):
        """A generator of a card."""

        @property
        def device(self) -> torch.device:
            found: torch.device = self.__dict__["card"]
            return found

        def clone_state(self) -> Any:
            return made(self.device, self.get_state())

        def graphsafe_get_state(self) -> Any:
            return self

        def graphsafe_set_state(self, state: Any) -> None:
            self.set_state(state.get_state())

        set_offset = nothing

        def get_offset(self) -> int:
            return 0

    class Generator(_Base, metaclass=Like):
        """`torch.Generator`, on a card too."""

        def __new__(cls, device: Any = "cpu") -> Any:
            found = torch.device(device) if not isinstance(device, int) else torch.device("cuda", device)
            return made(follower.card_at(found.index).device) if found.type == "cuda" else _Base(device=device)

    def made(device: torch.device, state: Any = None) -> Any:
        found = _Base.__new__(CardGenerator)
        found.__dict__["card"] = device
        if state is not None:
            found.set_state(state)
        return found

    torch.Generator = Generator  # type: ignore[misc]
    for card in follower.cards:
        card.generator = made(card.device)
        card.generator.manual_seed(0)
    torch.cuda.default_generators = tuple(card.generator for card in follower.cards)
    follower.shadows.generator = follower.cards[0].generator if follower.cards else None
