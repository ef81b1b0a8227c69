"""Drawings as fragments of HTML and SVG: no script, nothing loaded, readable with eyes, fingers and screen readers.

Their colours and their style are in `rendering.page` (`STYLE`, everything under the class `legroom`).
"""

from legroom.rendering.figures.bars import Bar, Limit, Segment, bar_of, bar_of_items, stacked_bars
from legroom.rendering.figures.curves import Layer, curve, timeline
from legroom.rendering.figures.tables import item_table, table, text_lines, text_table

__all__ = [
    "Bar",
    "Layer",
    "Limit",
    "Segment",
    "bar_of",
    "bar_of_items",
    "curve",
    "item_table",
    "stacked_bars",
    "table",
    "text_lines",
    "text_table",
    "timeline",
]
