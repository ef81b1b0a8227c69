"""An explained log as a part of a page: what ran out, what most likely took it, and what helps."""

from __future__ import annotations

from html import escape

from legroom.model.explanation import Explanation
from legroom.rendering.explanation_text import explanation_text
from legroom.rendering.figures.tables import text_lines


def explanation_body(found: Explanation) -> str:
    """Return what the planner page shows of a pasted log, its first line a heading of its own."""
    head, *rest = explanation_text(found)
    words = head if isinstance(head, str) else getattr(head, "text", "")
    kind = "bad" if found.recognised else ""
    return f'<p class="words {kind}">{escape(words)}</p>' + text_lines(rest)
