"""`python -m legroom` is the command `legroom`; use `python -P -m legroom` in a folder that others can write to.

Without -P Python puts the working directory first, where a yaml.py would be taken for yaml. It is taken out again
here, unless this package lies in it; but a legroom.py there has been imported by then.
"""

import os
import sys
from importlib import import_module

import legroom

_home = os.path.dirname(os.path.dirname(legroom.__file__))  # noqa: PTH120  a pathlib.py may lie there
if not sys.flags.safe_path and sys.path[0] != _home:
    del sys.path[0]

import_module("legroom.cli.main").main()
