"""The process that works out answers for the page, one after the other: a line of JSON in, a line of JSON out.

Its memory is bounded by the system, readings in it also by the system's timer; whatever takes longer is killed by
the page (`answering`).
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from legroom.errors import LegroomError
from legroom.reading.reading_budget import MOST_BYTES, bounded_reading, end_by_timer
from legroom.serving.answers import ANSWERS, OWN_ANSWERS
from legroom.serving.guard import Refused
from legroom.serving.questions import Here

# Address space beyond what the imports took: what readings may hold, as much again for what is made of it, and
# libraries that are imported late.
MOST_ADDRESSES = 4 * MOST_BYTES
MOST_SECONDS = 8.0  # of processor time


def main() -> None:
    """Answer until there are no more questions."""
    answers_to = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what a module prints is not an answer
    end_by_timer()
    here = Here()
    _bound_memory()
    for line in sys.stdin:
        answers_to.write(json.dumps(_answer(json.loads(line), here)) + "\n")
        answers_to.flush()


def _answer(asked: dict[str, Any], here: Here) -> dict[str, Any]:
    try:
        with bounded_reading("the request", MOST_SECONDS):
            body = asked["body"].encode("utf-8", "surrogateescape")
            if "own" in asked:
                kind, text = OWN_ANSWERS[asked["path"]](body, asked["query"], here, asked["own"])
            else:
                kind, text = ANSWERS[asked["path"]](body, asked["query"], here)
    except Refused as refused:
        return {"status": refused.status, "text": str(refused)}
    except LegroomError as error:
        return {"status": 400, "text": str(error)}
    except Exception as error:  # said by the page, which goes on
        return {"status": 500, "text": f"{type(error).__name__}: {str(error)[:200]}"}
    return {"status": 200, "kind": kind, "text": text}


def _bound_memory() -> None:
    with suppress(ImportError, OSError, ValueError):  # not every system can say, or be told
        import resource

        now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (now + MOST_ADDRESSES, resource.RLIM_INFINITY))
