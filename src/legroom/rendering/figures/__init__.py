"""Drawings as fragments of HTML and SVG: no script, nothing loaded, readable with eyes, fingers and screen readers.

Their colours and their style are in `rendering.page` (`STYLE`, everything under the class `legroom`).
"""
