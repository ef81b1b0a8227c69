"""LR009: keys that nothing reads in such a run."""

from __future__ import annotations

from collections.abc import Iterator

from legroom.backends.base import algorithm_of
from legroom.checking.locating import line_removal, value_fix
from legroom.checking.looking import callbacks_are_its_own, per_run, size
from legroom.checking.rule import Found, Rule
from legroom.checking.subject import Key, Subject, SubjectRun
from legroom.model.constraints import keys_without_effect

REPLAY: Key = ("checkpoint", "replay_buffer")
# Words in the names of an environment's arguments that say how much it does in a step or has to draw from. An argument
# of another name may change the observation, and so the networks.
AMOUNTS_OF_WORK = {
    *("sims", "simulations", "ignitions", "scenarios", "substeps", "frameskip", "lookahead"),
    *("rasters", "landscapes", "levels", "tracks", "maps"),
}


def look(subject: Subject, one: SubjectRun) -> Iterator[Found]:
    for key, message, hint in keys_without_effect(one.run):
        if not one.gives(*key) or (key == REPLAY and not callbacks_are_its_own(subject)):
            continue  # a base run's, a default, or another model's
        if key == REPLAY and subject.kind in ("constants", "script"):
            message = message.replace("saving the replay buffer", "save_replay_buffer")
            fix = value_fix(subject, one, key, "False", "save_replay_buffer -> False, which is what happens now")
        else:
            fix = line_removal(subject, one.line(*key), f"remove {key[-1]}, which nothing reads")
        refused = key[0] == "hyperparams" and subject.kind in ("script", "zoo")
        if refused and one.run.backend == "sb3":
            message = f"{algorithm_of(one.run).name} takes no {key[-1]}: its constructor raises a TypeError"
        yield Found(message, hint, one.line(*key), "error" if refused else None, fix)
    yield from _not_on_the_gpu(subject, one)


def _not_on_the_gpu(subject: Subject, one: SubjectRun) -> Iterator[Found]:
    """Yield a word on keys that people turn when the GPU is full, where they live in host memory."""
    vram = subject.budget.vram
    gpu = one.footprint.gpu if one.footprint else None
    if vram is None or gpu is None or gpu.high <= subject.budget.usable(vram) or one.run.backend != "sb3":
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


RULE = Rule(
    code="LR009",
    name="no-effect",
    severity="warning",
    what="A key that this algorithm, backend or kind of buffer does not read.",
    why="Whoever wrote it believes that it does something: SAVE_REPLAY_BUFFER with PPO saves nothing and costs "
    "nothing. "
    "SB3's constructors refuse foreign arguments altogether, which is an error in a script or a zoo file.",
    example="algo: PPO\ncheckpoint: {replay_buffer: true}   # PPO has none",
    remedy="Remove the key, or choose the algorithm that has it.",
    look=per_run(look),
)
