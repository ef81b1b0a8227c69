"""Nouns that show themselves in notebooks, without knowing how.

Jupyter, VS Code and the like ask what stands on a cell's last line for `_repr_html_`. A noun answers with a name of the
catalogue, which is imported when it is asked and not before: `model/` depends on no drawing, and a script that shows
nothing never loads one.
"""

from __future__ import annotations

from typing import ClassVar

from legroom.catalog import load


class ShownInNotebooks:
    """Something that a notebook shows as a drawing; `_shown_by` is the catalogue's name of what draws it."""

    __slots__ = ()
    _shown_by: ClassVar[str]

    def _repr_html_(self) -> str:
        """Return HTML with its own style, which reaches nothing beside it."""
        drawn: str = load(self._shown_by)(self)
        return drawn
