"""A window for people, with pygame, which nothing else here needs: a training never opens one.

The window keeps the game's pace of 60 frames per second by waiting. Closing it is not an error: `is_open` turns False,
and pictures shown after that are not shown.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from legroom.extend import BadInput, MissingExtra
from legroom_workloads.ninja.tiles import HEIGHT, WIDTH


class Window:
    """A window of the world's size.

    Raises:
        MissingExtra: pygame is not installed.
        BadInput: there is no screen to open a window on.
    """

    def __init__(self, title: str = "ninja", frames_per_s: int = 60) -> None:
        self._pygame = pygame = _pygame()
        self._frames_per_s = frames_per_s
        try:
            pygame.display.init()
            self._screen = pygame.display.set_mode((WIDTH, HEIGHT))
        except pygame.error as problem:
            pygame.display.quit()
            raise BadInput(f"no window can be opened: {problem}", hint="rgb_array needs no screen") from None
        pygame.display.set_caption(title)
        self._clock = pygame.time.Clock()
        self.is_open = True

    def show(self, picture: NDArray[np.uint8]) -> None:
        """Show a picture [600, 1056, 3], and wait until its time is over."""
        if not self.is_open:
            return
        if any(event.type == self._pygame.QUIT for event in self._pygame.event.get()):
            self.close()
            return
        self._pygame.surfarray.blit_array(self._screen, picture.swapaxes(0, 1))  # pygame counts columns first
        self._pygame.display.flip()
        self._clock.tick(self._frames_per_s)

    def action(self) -> int:
        """Return the action, a number of `game.ACTIONS`, that the keys held down ask for: arrows, and space to jump."""
        if not self.is_open:
            return 0
        keys = self._pygame.key.get_pressed()
        right = int(keys[self._pygame.K_RIGHT]) - int(keys[self._pygame.K_LEFT])
        jump = keys[self._pygame.K_SPACE] or keys[self._pygame.K_UP]
        return (0, 2, 1)[right] + (3 if jump else 0)

    def close(self) -> None:
        """Close the window, once or again."""
        if self.is_open:
            self.is_open = False
            self._pygame.display.quit()


def _pygame() -> Any:
    try:
        return import_module("pygame")
    except ModuleNotFoundError as missing:
        if missing.name != "pygame":
            raise
        raise MissingExtra("ninja", "pygame", what="render_mode human") from missing
