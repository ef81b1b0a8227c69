"""`legroom.attach`: savings attached by a line in the program itself, the same as `legroom train --with` attaches."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import legroom
from legroom.backends.base import all_attachments
from legroom.backends.program.savings import by_default, chosen, hooks_of, variables_of
from legroom.errors import LegroomError
from legroom.hollow.attaching import VARIABLE, calling, plan
from legroom.hollow.import_hook import ImportHook

_here: dict[str, object] = {}  # the plan of this process; a child that imports the program makes its own


def attach(*what: str) -> None:
    """Attach memory savings to this program: those that cost nothing, and those named.

    Call it at the top of the program, before torch is imported: allocator settings are read then. What is attached is
    said on standard error. What `legroom train --with` has attached already is left as it is.

    Args:
        what: `"lean"`, `"micro_batch=16"`, …, as after `--with`.

    Raises:
        BadInput: there is no such saving, or its number is missing or wrong.
        LegroomError: no backend is registered.

    Example:
        >>> import legroom
        >>> legroom.attach("lean")
    """
    before = plan() if _here or "legroom_hollow" in sys.modules else {}  # else a parent's, which attached nothing here
    there_are = all_attachments()
    if not there_are:
        raise LegroomError("legroom is importable but not installed, so its backends are not known (pip install it)")
    wanted = chosen(",".join(what), there_are) if what else by_default(there_are)
    mine = [one for one in there_are if one.name in wanted and one.name not in before.get("with", {})]
    if not mine:
        return
    hooks, acts = before.get("hooks", {}), {}
    for module, functions in hooks_of(mine).items():
        there = hooks.get(module, {})
        hooks[module] = {**there, **functions}
        new = {name: function for name, function in functions.items() if function not in there.values()}
        acts.update({module: calling(new)} if new else {})
    names = {**before.get("with", {}), **{one.name: wanted[one.name] for one in mine}}
    _here.update(before, **{"package": str(Path(legroom.__file__).parent), "with": names, "hooks": hooks})
    os.environ[VARIABLE] = json.dumps(_here)
    os.environ.update(variables_of(mine, os.environ, has_gpu=True)[0])
    for module in [name for name in acts if name in sys.modules]:
        acts.pop(module)(sys.modules[module])
    sys.meta_path.insert(0, ImportHook(acts))  # type: ignore[arg-type]
