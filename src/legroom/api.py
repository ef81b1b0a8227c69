"""legroom from Python: the same predictions as the command line's, for scripts and notebooks."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from legroom.backends.base import backends
from legroom.errors import BadInput, in_python
from legroom.machine import probe
from legroom.machine.gpu_table import find_gpu
from legroom.model.footprint import Footprint
from legroom.model.machine import Machine
from legroom.model.run import Run
from legroom.model.verdict import Budget
from legroom.model.verdict import fits as footprint_fits
from legroom.predicting.predict import DeviceName, Mode
from legroom.predicting.predict import predict as predict_run
from legroom.reading import read as read_run
from legroom.units import parse_size

read = in_python()(read_run)


@in_python()
def predict(
    what: Any,
    policy: Any = None,
    env: Any = None,
    *,
    machine: Machine | None = None,
    mode: Mode = "auto",
    device: DeviceName | str | None = None,
    probe_env: bool = False,
    trust: bool = False,
    **arguments: Any,
) -> Footprint:
    """Return what a training will need, before anything of it is allocated.

    Args:
        what: a script, a run file or a named run, which is read and not executed; a Run; a live SB3 model; or an
            algorithm's class, followed by what its constructor would get: for the script that dies while it *builds*
            its model.
        probe_env: build the run's environment in a child process and step it for a second, also where its spaces are
            declared: tells what lean storage would take, and how fast it would be.
        trust: import the code that a Run names by `module:attr`; classes that a call is given are the caller's own.

    Raises:
        Unseen: the spaces are known only to the run's environment, which is such code and not trusted.
        BadInput: an argument cannot be understood.

    Example:
        >>> import legroom
        >>> legroom.predict("mine:full", mode="arithmetic")
        Footprint(mine:full on cpu: host 211.2 GiB at the peak)
        >>> import gymnasium
        >>> from stable_baselines3 import PPO
        >>> env = gymnasium.make("CartPole-v1")
        >>> needed = legroom.predict(PPO, "MlpPolicy", env, n_steps=512, mode="arithmetic")
        >>> needed.host.nbytes < 1 << 30
        True
        >>> model = PPO("MlpPolicy", "CartPole-v1", n_steps=512)
        >>> legroom.predict(model, mode="arithmetic").gpu is None
        True
    """
    called = policy is not None or env is not None or bool(arguments)
    if isinstance(what, Run | str | os.PathLike):
        if called:
            raise TypeError("predict(run) takes no constructor arguments; change the run instead")
        run = what if isinstance(what, Run) else read_run(os.fspath(what))
    elif not isinstance(what, type) and not called and hasattr(what, "device"):
        run, trust = _run_of(what, None), True
        device = str(what.device) if device is None else device
    else:
        run, trust = _run_of(what, {"policy": policy, "env": env, **arguments}), True
    return predict_run(run, machine, mode=mode, device=_device(device), trust=trust)


@in_python()
def fits(
    what: Any,
    policy: Any = None,
    env: Any = None,
    *,
    ram: str | int | None = None,
    vram: str | int | None = None,
    gpu: str | None = None,
    budget: Budget | str | int | None = None,
    machine: Machine | None = None,
    device: DeviceName | str | None = None,
    **arguments: Any,
) -> bool | None:
    """Return whether a run, or a constructor's call, fits; by arithmetic, in milliseconds, so that a tuner can ask.

    `fits(PPO, "CnnPolicy", env, ram="4GiB", n_steps=2048)`; None where it depends on what was not seen.

    >>> import legroom
    >>> legroom.fits("mine:small", ram="16GiB", device="cpu")
    True
    >>> legroom.fits("mine:full", ram="16GiB", device="cpu")
    False

    Args:
        env: an environment or VecEnv, which tells its spaces; an id alone does so only where it was measured before.
        ram: host memory (`"4GiB"`, bytes); default: what is free.
        vram, gpu: the GPU's memory, or its name; with either the run is asked about on a GPU unless `device` says.
        budget: a Budget in place of these, or what `ram` is (its name in 0.2).

    Raises:
        BadInput: an argument cannot be understood, or the spaces are not known.
    """
    machine = machine or probe()
    if gpu is not None:
        machine = replace(machine, gpus=(find_gpu(gpu).as_gpu(),))
    if isinstance(budget, Budget):
        if not ram is vram is gpu is None:
            raise BadInput("budget= is a Budget, which says all of ram=, vram= and gpu=", hint="give one of them")
    else:
        if None not in (ram, budget):
            raise BadInput("ram= and budget= are both given", hint="they mean the same: ram=")
        budget = asked_budget(machine, ram=budget if ram is None else ram, vram=vram, named=gpu is not None)
        device = device or ("cuda" if vram is not None or gpu is not None else None)
    footprint = predict(what, policy, env, machine=machine, mode="arithmetic", device=device, **arguments)
    return footprint_fits(footprint, budget)


def asked_budget(
    machine: Machine, *, ram: str | int | None, vram: str | int | None, named: bool, share: int = 1
) -> Budget:
    """Return the budget that arguments give: what is free of host memory and of a named GPU where they give none."""
    limit = machine.available if ram is None else parse_size(ram, what="ram")
    card = parse_size(vram, what="vram") if vram is not None else machine.gpus[0].free if named else None
    return Budget(limit // share, None if card is None else card // share)


@in_python()
def predict_model(model: Any, *, machine: Machine | None = None, mode: Mode = "auto") -> Footprint:
    """Return what training a live SB3 model will need; its networks and buffers are only read.

    Example:
        >>> import legroom
        >>> from stable_baselines3 import PPO
        >>> legroom.predict_model(PPO("MlpPolicy", "CartPole-v1"), mode="arithmetic").device
        'cpu'
    """
    run = _run_of(model, None)
    return predict_run(run, machine, mode=mode, device=_device(str(model.device)), trust=True)


def _run_of(what: Any, arguments: Mapping[str, Any] | None) -> Run:
    """Return the run of the first backend that knows the object; the default one is asked first and says why not."""
    runs = (backend.reader.run_of_object(what, arguments) for backend in backends())
    found = next((run for run in runs if run is not None), None)
    if found is None:
        raise BadInput("no installed backend knows this algorithm")
    return found


def _device(device: str | None) -> DeviceName | None:
    # SB3 takes "cuda:0" and "auto" too
    if device is None or device == "auto":
        return None
    return "cuda" if device.startswith("cuda") else "cpu"
