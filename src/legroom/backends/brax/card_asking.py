"""XLA asked about a brax run on a card, and what a reader should know about where the figures of a bill come from."""

from collections.abc import Callable

from legroom.backends.brax.calibration import made_elsewhere, sizes_of
from legroom.backends.brax.card_plans import ask_for_card
from legroom.backends.brax.items import GPU_ERROR, OTHER_CARD_ERROR, card_of
from legroom.backends.brax.scaling import Scaled, known_for, known_of
from legroom.device.xla_target import EXTRA, PLUGIN, known_card, plugin_missing
from legroom.errors import BadInput, MissingExtra
from legroom.installing import install_command
from legroom.machine.versions import is_installed
from legroom.model.evidence import Mode
from legroom.model.machine import Gpu, Machine
from legroom.model.run import Run
from legroom.predicting.constraints import broken_rules
from legroom.predicting.xla_allocator import XLA_SHARE
from legroom.units import format_size


def asked_for_card(run: Run, gpu: Gpu, mode: Mode, progress: Callable[[str], None]) -> str:
    """Have XLA asked for the card where that is possible and its plan is not known; return why that failed, if it did.

    `auto` does so where there is no plan of such a card; `trace` also asks about the very run.
    """
    card, known = known_card(gpu), known_of(run)
    refused = any(finding.severity == "error" for finding in broken_rules(run))
    if mode == "arithmetic" or card is None or known is None or refused or plugin_missing():
        return ""
    planned = known_for(run, gpu)
    if mode == "auto" and planned is not None and planned.plan is not None:
        known_kind = planned.same_card and planned.plan.knows(sizes_of(run))
        if known_kind or planned.scaled:
            return ""
    try:
        ask_for_card(run, card, progress=progress)
    except (BadInput, MissingExtra) as wrong:
        return f"XLA could not plan it for a {card.name} ({wrong}): the CPU's plan is used, with a wide band"
    return ""


def brax_notes(run: Run, device: str, machine: Machine) -> tuple[str, ...]:
    """Return what the reader of the bill should know about where its figures come from, and what a card will show."""
    gpu = card_of(machine) if device == "cuda" else None
    known = known_of(run) if device != "cuda" else known_for(run, gpu)
    if known is None:
        said = (
            "predicted by arithmetic: the size of an environment is a default; --mode trace asks the compiler, once "
            "for all settings of this environment"
        )
        return (said, *_preallocated(run, gpu))
    of = "of the same environment with other networks or knobs" if known.scaled else "of this training step"
    if others := made_elsewhere(known.calibration):
        of += f", compiled with {', '.join(others)} (other versions here; --mode trace compiles it here)"
    if device != "cuda":
        return (f"temporaries are as XLA's CPU compiler plans those {of}",)
    return (_compiler_note(known, of), *_preallocated(run, gpu))


def _compiler_note(known: Scaled, of: str) -> str:
    if known.plan is None:
        said = f"temporaries are as XLA's CPU compiler plans those {of}; the GPU's compiler plans differently"
        return f"{said}: ±{GPU_ERROR:.0%} of the temporaries. {_how_to_ask()}"
    said = f"temporaries are as XLA's compiler for a {known.plan.card} plans those {of}"
    if known.same_card:
        return said
    return f"{said}: ±{OTHER_CARD_ERROR:.0%} of the temporaries on another GPU. {_how_to_ask()}"


def _how_to_ask() -> str:
    missing = plugin_missing()
    if not missing:
        return "--mode trace with --gpu asks XLA for that GPU"
    why = f" ({missing})" if is_installed(PLUGIN) else ""
    return f"For this GPU's exact plan{why}, install it: {install_command(EXTRA, PLUGIN)}"


def _preallocated(run: Run, gpu: Gpu | None) -> tuple[str, ...]:
    """Return what nvidia-smi will show, which is not what the run needs."""
    if gpu is None or run.memory.xla_preallocate is False:
        return ()
    taken = format_size(round(XLA_SHARE * gpu.free))
    return (
        f"nvidia-smi will show about {taken} plus the CUDA context, whatever the run needs: XLA reserves "
        f"{XLA_SHARE:.0%} of the GPU when it starts (memory.xla_preallocate: false turns that off)",
    )
