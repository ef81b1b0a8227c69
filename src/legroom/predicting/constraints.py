"""The libraries' own rules about a run: what they would refuse or do differently from what the file seems to say.

`predict` shows them beside the footprint, `fit` must satisfy them, `train` refuses what breaks them. A backend states
the rules of its library; settings that nothing reads are found here.
"""

from collections.abc import Iterator
from dataclasses import fields

from legroom.backends.base import algorithm_of, backend_of
from legroom.model.footprint import Finding
from legroom.model.run import MemorySpec, Run


def broken_rules(run: Run) -> list[Finding]:
    """Return what is wrong with the run, errors first."""
    findings = [*backend_of(run).predictor.constraints(run), *_no_effect(run)]
    order = ("error", "warning", "info")
    return sorted(findings, key=lambda finding: order.index(finding.severity))


def _no_effect(run: Run) -> Iterator[Finding]:
    for _, message, hint in keys_without_effect(run):
        yield Finding("LR009", "no-effect", "warning", message, hint=hint, path=run.source)


def keys_without_effect(run: Run) -> Iterator[tuple[tuple[str, ...], str, str]]:
    """Yield (key path, what is wrong, the way out) for keys of another algorithm, backend or kind of buffer."""
    backend, algorithm = backend_of(run), algorithm_of(run)
    for key in run.hyperparams:
        if backend.predictor.checks_hyperparams and key not in algorithm.keys:
            takers = [a.name for a in backend.algorithms if key in a.defaults]
            hint = f"it belongs to {', '.join(takers)}" if takers else "remove it"
            yield ("hyperparams", key), f"{key} has no effect with {algorithm.name}", hint
    unread = backend.predictor.unread_memory(run)
    if unread is None:
        keys = (field.name for field in fields(MemorySpec))
        unread = {key: (f"memory.{key} has no effect with backend {backend.name}", "") for key in keys}
    for key, (message, hint) in unread.items():
        if getattr(run.memory, key) is not None:
            yield ("memory", key), message, hint
    if run.checkpoint and run.checkpoint.replay_buffer and algorithm.family != "off-policy":
        yield (
            ("checkpoint", "replay_buffer"),
            f"saving the replay buffer has no effect with {algorithm.name}, which has none: it costs neither "
            "memory nor time",
            "remove it",
        )
    if run.env.start_method and run.env.workers == "dummy":
        yield ("env", "start_method"), "start_method has no effect with workers: dummy, which start no process", ""
    if run.env.envs_per_worker > 1 and run.env.workers != "light":
        hint = "workers: light"
        yield ("env", "envs_per_worker"), f"envs_per_worker has no effect with workers: {run.env.workers}", hint
