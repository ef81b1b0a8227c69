"""LR010: environments that cannot be dealt out to the devices."""

from collections.abc import Iterator

from legroom.backends.base import hyper
from legroom.backends.brax.constraints import device_rule
from legroom.checking.locating import value_fix
from legroom.checking.rule_helpers import N_ENVS, per_run
from legroom.model.rule import Found, Rule
from legroom.model.subject import Key, Subject, SubjectRun

MOST: Key = ("hyperparams", "max_devices_per_host")


def look(subject: Subject, one: SubjectRun) -> Iterator[Found]:
    devices = _devices(subject, one)
    if devices is None:
        return
    for finding in device_rule(one.run, devices):
        better = str((finding.fix or {})["env.n_envs"])
        fix = value_fix(subject, one, N_ENVS, better, f"num_envs {one.run.env.n_envs} -> {better}")
        yield Found(finding.message, finding.hint, one.line(*N_ENVS), fix=fix)


def _devices(subject: Subject, one: SubjectRun) -> int | None:
    """Return how many devices brax would use, None where neither file nor machine says it."""
    if not one.knows(*MOST):
        return None
    here = len(subject.machine.gpus) if one.footprint is not None and one.footprint.device == "cuda" else 0
    most = hyper(one.run, "max_devices_per_host")
    if here:
        return min(here, most) if most else here
    return int(most) if most else None


RULE = Rule(
    code="LR010",
    name="brax-devices",
    severity="error",
    what="num_envs is not a multiple of the number of devices.",
    why="brax deals environments out evenly and asserts num_envs % device_count == 0.",
    example="ppo: {num_envs: 1000, max_devices_per_host: 3}",
    remedy="The nearest multiple, or another max_devices_per_host.",
    look=per_run(look, needs=(N_ENVS,)),
)
