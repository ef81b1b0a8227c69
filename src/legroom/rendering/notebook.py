"""What a notebook shows of a noun: its document, without the page."""

from __future__ import annotations

from legroom.model.footprint import Footprint, ShownInNotebooks
from legroom.model.plan import Plan
from legroom.model.rehearsal import ProgramPrediction
from legroom.model.trace import Trace
from legroom.rendering.page import fragment
from legroom.rendering.plan_text import plan_document
from legroom.rendering.prediction_text import footprint_document
from legroom.rendering.program_text import program_document
from legroom.rendering.watch_text import trace_document


def drawn(noun: ShownInNotebooks) -> str:
    """HTML with its own style."""
    match noun:
        case Footprint():
            return fragment(footprint_document(noun))
        case Plan():
            return fragment(plan_document(noun))
        case ProgramPrediction():
            return fragment(program_document(noun, everything=True))
        case Trace():
            return fragment(trace_document(noun))
    raise TypeError(f"cannot draw a {type(noun).__name__}")
