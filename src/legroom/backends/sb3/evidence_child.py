"""The process that does the heavy part of a prediction: imports the libraries, makes small updates, traces.

    main() < request (a pickled list of Request, from `bill.tracing`, which starts it)

A process of its own keeps the command light and small: nothing it imports or allocates outlives the prediction, and a
crash in a user's network is a message. One run is worked on in this process; of several, each in a fork of it, so that
the libraries are imported once and no run's leftovers are taken for another's memory.
"""

import multiprocessing
import os
import pickle
import sys
import warnings
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from legroom.backends.sb3.bill.scratch import Answer, Request
from legroom.backends.sb3.light_imports import COMPILER, import_lightly, is_imported
from legroom.backends.sb3.measured_updates import measure_updates
from legroom.backends.sb3.stored import one_env
from legroom.backends.sb3.trace import trace_run
from legroom.errors import Untraceable
from legroom.orphan import end_with

MOST_AT_ONCE = 4


def answer(request: Request) -> Answer:
    """Return what tracing and measuring gave; what cannot be done is a reason, never an exception."""
    measured, not_measured = [], ""
    if request.batches:
        # before tracing, while the process holds nothing but the libraries
        try:
            measured = measure_updates(one_env(request.run), request.batches)
        except Exception as wrong:  # a user's classes may raise anything
            words = " ".join(f"{type(wrong).__name__}: {wrong}".split())
            not_measured = f"a small real update could not be made: {words}"
    try:
        net = trace_run(request.run, request.device, card=request.card, values=request.values)
    except Untraceable as reason:
        return Answer(None, str(reason), reason.way, reason.modelled, measured, not_measured)
    net = replace(net, compiles=is_imported(COMPILER))
    return Answer(net, measured=measured, not_measured=not_measured)


def _in_forks(requests: list[Request], at_once: int) -> list[Answer]:
    """Return the answers, each worked out in a fork of this process.

    Not by multiprocessing's Pool: it forks from a thread, with whose end the kernel would end a worker that has asked
    to end with its parent, and one that ends while it holds the lock of the queue leaves the Pool waiting for ever.
    """
    fork, me = multiprocessing.get_context("fork"), os.getpid()
    answers: dict[int, Answer] = {}
    running: dict[Connection, tuple[int, BaseProcess]] = {}
    while len(answers) < len(requests):
        while len(running) < at_once and len(answers) + len(running) < len(requests):
            number = len(answers) + len(running)
            ours, theirs = fork.Pipe(duplex=False)
            started = fork.Process(target=_answer_in_fork, args=(requests[number], theirs, me))
            started.start()
            theirs.close()
            running[ours] = number, started
        for ready in wait(list(running)):
            assert isinstance(ready, Connection)
            number, process = running.pop(ready)
            try:
                answers[number] = ready.recv()
            except EOFError:
                process.join()
                how = f"the process that worked on it ended with exit code {process.exitcode}"
                answers[number] = Answer(None, how, not_measured=how)
            process.join()
    return [answers[number] for number in range(len(requests))]


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
        at_once = min(len(requests), os.cpu_count() or 1, MOST_AT_ONCE)
        answers = _in_forks(requests, at_once)
    with os.fdopen(answers_to, "wb") as file:
        pickle.dump(answers, file, protocol=pickle.HIGHEST_PROTOCOL)


if __name__ == "__main__":
    main()
