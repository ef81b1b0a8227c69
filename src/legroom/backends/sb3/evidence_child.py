"""The process that does the heavy part of a prediction: imports the libraries and traces.

    main() < a pickled list of Request, from `bill.tracing`, which starts it

A process of its own keeps the command light and small: nothing it imports or allocates outlives the prediction, and a
crash in a user's network is a message. One run is traced in this process; of several, each in a fork of it, so that the
libraries are imported once.
"""

import multiprocessing
import os
import pickle
import sys
import warnings
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing.connection import Connection

from legroom.backends.sb3.bill.tracing import Answer, Request
from legroom.backends.sb3.light_imports import COMPILER, import_lightly, is_imported
from legroom.backends.sb3.trace import trace_run
from legroom.errors import Untraceable
from legroom.orphan import end_with

MOST_AT_ONCE = 4


def answer(request: Request) -> Answer:
    """Return what tracing gave; what cannot be traced is a reason, never an exception."""
    try:
        net = trace_run(request.run, request.device, card=request.card, values=request.values)
    except Untraceable as reason:
        return Answer(None, str(reason), reason.way, reason.modelled)
    return Answer(replace(net, compiles=is_imported(COMPILER)))


def _forked(requests: list[Request]) -> Iterator[Answer]:
    """Yield the answers, each worked out in a fork of this process beside the others, since one may end its process."""
    fork, running = multiprocessing.get_context("fork"), []
    for request in requests:
        ours, theirs = fork.Pipe(duplex=False)
        process = fork.Process(target=_answer_in_fork, args=(request, theirs, os.getpid()))
        process.start()
        theirs.close()
        running.append((ours, process))
    for ours, process in running:
        try:
            yield ours.recv()
        except EOFError:
            process.join()
            yield Answer(None, f"the process that worked on it ended with exit code {process.exitcode}")


def _answer_in_fork(request: Request, to: Connection, parent: int) -> None:
    end_with(parent)
    to.send(answer(request))


def main() -> None:
    requests: list[Request] = pickle.load(sys.stdin.buffer)
    answers_to = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what a user's module prints is not an answer
    warnings.simplefilter("ignore")
    import_lightly()
    if len(requests) == 1:
        answers = [answer(requests[0])]
    else:
        at_once = min(os.cpu_count() or 1, MOST_AT_ONCE)
        answers = [one for first in range(0, len(requests), at_once) for one in _forked(requests[first:][:at_once])]
    with os.fdopen(answers_to, "wb") as file:
        pickle.dump(answers, file, protocol=pickle.HIGHEST_PROTOCOL)


if __name__ == "__main__":
    main()
