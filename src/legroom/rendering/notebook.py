"""What a notebook shows of a noun: the drawings of the pages, without the page."""

from __future__ import annotations

from functools import singledispatch

from legroom.model.footprint import Footprint
from legroom.model.plan import Plan
from legroom.model.rehearsal import ProgramPrediction
from legroom.model.shown import ShownInNotebooks
from legroom.model.trace import Trace
from legroom.rendering.pages.plan_page import plan_fragment
from legroom.rendering.pages.prediction_page import footprint_fragment
from legroom.rendering.pages.program_page import program_fragment
from legroom.rendering.pages.watch_page import trace_fragment


@singledispatch
def drawn(noun: ShownInNotebooks) -> str:
    """Return the drawing of a noun as HTML with its own style."""
    raise TypeError(f"cannot draw a {type(noun).__name__}")


drawn.register(ProgramPrediction, program_fragment)
drawn.register(Footprint, footprint_fragment)
drawn.register(Plan, plan_fragment)
drawn.register(Trace, trace_fragment)
