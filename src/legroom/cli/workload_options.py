"""How options that workloads declare are shown in help and completion.

`overrides` has rewritten them before the option parser sees a line, so it never takes one of these.
"""

from __future__ import annotations

from collections.abc import Sequence

from typer.core import TyperOption

from legroom.reading.workload_options import declared_options


def shown_options(words: Sequence[str]) -> list[TyperOption]:
    """Return the options of the workloads that a command line names, or of all where it names none."""
    about: dict[str, list[str]] = {}
    metavars: dict[str, str] = {}
    for workload, option in declared_options([word.partition(":")[0] for word in words]):
        about.setdefault(option.name, []).append(f"{workload or 'others'}: {option.help}")
        metavars.setdefault(option.name, option.metavar)
    return [
        TyperOption(param_decls=[name], metavar=metavars[name], help=f"{'; '.join(helps)}.", expose_value=False)
        for name, helps in about.items()
    ]
