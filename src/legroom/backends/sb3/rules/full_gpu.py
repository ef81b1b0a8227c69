"""LR009, what SB3 adds to it: keys that people turn when the GPU is full, and that live in host memory."""

from collections.abc import Iterator
from dataclasses import replace

from legroom.backends.base import algorithm_of
from legroom.checking.rule_helpers import per_run
from legroom.checking.rules.runs import no_effect
from legroom.model.rule import Found
from legroom.model.subject import Key, Subject, SubjectRun
from legroom.units import format_fine_size as size

# Words in the names of an environment's arguments that say how much it does in a step or has to draw from. An argument
# of another name may change the observation, and so the networks.
AMOUNTS_OF_WORK = {
    *("sims", "simulations", "ignitions", "scenarios", "substeps", "frameskip", "lookahead"),
    *("rasters", "landscapes", "levels", "tracks", "maps"),
}


def look(subject: Subject, one: SubjectRun) -> Iterator[Found]:
    vram = subject.budget.vram
    gpu = one.footprint.gpu if one.footprint else None
    if vram is None or gpu is None or gpu.high <= subject.budget.usable(vram):
        return
    keys: list[tuple[Key, str]] = [
        (("hyperparams", "buffer_size"), "the replay buffer is in host memory"),
        (("hyperparams", "n_steps"), "the rollout is in host memory"),
    ]
    for name in one.run.env.kwargs:
        if set(name.lower().split("_")) & AMOUNTS_OF_WORK:
            keys.append((("env", "kwargs", name), "an environment works on the host, and this is how much it works"))
    for key, what in keys:
        if one.gives(*key) and (key[-1] != "n_steps" or algorithm_of(one.run).family == "on-policy"):
            message = f"{key[-1]} does not touch GPU memory ({size(gpu.nbytes)} predicted): {what}"
            yield Found(message, "a smaller batch_size or network, or micro-batches, would", one.line(*key), "info")


RULE = replace(no_effect.RULE, look=per_run(look))
