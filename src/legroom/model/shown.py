"""Nouns that show themselves in notebooks, without knowing how.

Jupyter, VS Code and the like ask what stands on a cell's last line for `_repr_html_`. `legroom/__init__.py` says who
draws (`draw_with`), and imports it when one is asked: `model/` depends on no drawing, and a script that shows nothing
never loads one. `import legroom` imports this, so it imports no dataclasses: a file of that name may lie in the folder
where `python -m legroom` was typed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar


class ShownInNotebooks:
    """Something that a notebook shows as a drawing."""

    __slots__ = ()
    _drawn_by: ClassVar[Callable[[ShownInNotebooks], str]]

    def _repr_html_(self) -> str:
        """Return HTML with its own style, which reaches nothing beside it."""
        return type(self)._drawn_by(self)


def draw_with(drawer: Callable[[ShownInNotebooks], str]) -> Callable[[ShownInNotebooks], str]:
    """Let `drawer` draw every noun."""
    ShownInNotebooks._drawn_by = staticmethod(drawer)
    return drawer
