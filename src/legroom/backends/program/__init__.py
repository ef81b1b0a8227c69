"""A command line as a backend of predictions: the user's own program, run on a card that is not there.

    launching.py    the command in its own interpreter, with the guest (`legroom.hollow`) on its PYTHONPATH
    journals.py     what the guests write, read while they write it
    allocation_ledger.py one process's memory on the card: what is alive, peaks, optimizer steps
    steady_state.py whether anything new still happens
    leaks.py        what grows from step to step, and the line that holds it
    host_watch.py   memory of the process tree, and what it has asked for and will fill
    rehearsing.py   the loop over all of these, and when it stops
    program_bill.py from a rehearsal to a footprint and a verdict

Nothing of legroom but the guest is loaded into the program, and nothing of the program into legroom.
"""
