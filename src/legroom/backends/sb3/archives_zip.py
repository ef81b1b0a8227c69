"""Checkpoints to SB3's own archives.

`model.zip` is what `PPO.load` loads: parameters, optimizers, hyperparameters, spaces. It is made from the checkpoint
and from `run.json`, without making the environment. Buffers in it are SB3's own, so that it loads without legroom,
unless SB3 could not even allocate them.
"""

import warnings
from math import prod
from pathlib import Path
from typing import Any

from gymnasium import spaces
from stable_baselines3.common.base_class import BaseAlgorithm

from legroom.backends.base import algorithm_names, find_algorithm
from legroom.backends.sb3.building import importable
from legroom.backends.sb3.hollow_buffers import StubVecEnv
from legroom.backends.sb3.lean_replay import LeanReplayBuffer
from legroom.backends.sb3.lean_storage import lean_rollout_class
from legroom.backends.sb3.making import make_model
from legroom.backends.sb3.state import restore_learned, saved_spaces
from legroom.environments.own_code import own_code
from legroom.errors import BadInput, LegroomError
from legroom.model.facts import Algorithm
from legroom.model.files import whole_file
from legroom.model.learner import Exported
from legroom.model.run import MemorySpec, Run
from legroom.training.checkpoint import newest_checkpoint
from legroom.training.run_folder import RUN, RunFolder, check_export

LARGEST_PLAIN_BUFFER = 4 << 30  # bytes; PPO.load allocates it, whatever the model is loaded for
_BUFFER_ARGUMENTS = ("_buffer_class", "_buffer_kwargs")
TRUST = "--trust, for files you trust"


def export_sb3(directory: Path, archive: Path, *, force: bool = False, trust: bool = False) -> Exported:
    """Write SB3's archive of a run's last good checkpoint, or of the one checkpoint that `directory` is.

    Args:
        trust: import the classes that the run's policy names and that no installed package has registered.

    Raises:
        BadInput: there is no good checkpoint, the archive exists (and not `force`), or the run's classes are not found
            or not trusted.
    """
    directory, archive = Path(directory), Path(archive)
    check_export(directory, archive, force=force)
    checkpoint = newest_checkpoint(directory)
    if checkpoint is None:
        raise BadInput("holds no good checkpoint", path=directory, hint="legroom train RUN --out DIR writes them")
    run = trusted_run(checkpoint.path.parent.parent, trust=trust)
    seen = saved_spaces(checkpoint)
    model = build_model(run, seen["observation"], seen["action"], checkpoint.data["n_envs"])
    restore_learned(model, checkpoint)
    save_archive(model, archive)
    notes = []
    if any(each["class"] == "VecNormalize" for each in (checkpoint.data["envs"] or {}).get("wrappers", ())):
        notes.append("the policy was trained on normalized observations; an archive does not hold their statistics")
    return Exported(archive, run.algo, checkpoint.step, archive.stat().st_size, tuple(notes))


def trusted_run(folder: Path, *, trust: bool) -> Run:
    """Return the same as `run_of_folder`, refused where building its networks would import code of the run's own.

    Raises:
        BadInput: it would, and is not trusted; or as there.
    """
    run = run_of_folder(folder)
    code = () if trust else own_code(run).policy
    if code:
        raise BadInput(f"the run names its own code: {', '.join(code)}", path=folder, hint=TRUST)
    return run


def run_of_folder(folder: Path) -> Run:
    """Return the run that was trained in a folder."""
    run = RunFolder(folder).run()
    if run is None:
        raise BadInput(f"has no {RUN}", path=folder, hint="it says what was trained; legroom train writes it")
    return run


def build_model(run: Run, observation: spaces.Space[Any], action: spaces.Space[Any], n_envs: int) -> BaseAlgorithm:
    """Return the run's algorithm on environments that are not there, with its real settings and next to no buffers."""
    algorithm = find_algorithm("sb3", run.algo)
    if algorithm is None or run.backend != "sb3":
        raise BadInput(f"{run.algo} of {run.backend} is not an SB3 algorithm", hint=", ".join(algorithm_names("sb3")))
    size, storage = _buffer(algorithm)
    wanted = {**algorithm.defaults, **run.hyperparams}.get(size) if size else None
    hyperparams = {key: value for key, value in run.hyperparams.items() if not key.endswith(_BUFFER_ARGUMENTS)}
    if size:
        hyperparams[size] = max(2, n_envs)
    memory = MemorySpec(activation_checkpointing=run.memory.activation_checkpointing)
    small = run.replace(hyperparams=hyperparams, memory=memory)
    env = StubVecEnv(n_envs, observation, action, lambda: None)
    with warnings.catch_warnings(), importable(run):
        warnings.simplefilter("ignore")  # about the tiny buffer
        try:
            model = make_model(small, env, "cpu")
        except LegroomError as error:
            raise BadInput(f"the trained run cannot be built: {error}", hint="run it where its modules are") from error
    if size and isinstance(wanted, int):
        setattr(model, size, wanted)
        rows = wanted * (n_envs if size == "n_steps" else 2)
        if rows * _nbytes(observation) > LARGEST_PLAIN_BUFFER:
            lean = LeanReplayBuffer if storage == "replay" else lean_rollout_class(type(model))
            setattr(model, f"{storage}_buffer_class", lean)
    return model


def _buffer(algorithm: Algorithm) -> tuple[str, str]:
    """Return the hyperparameter that sizes an algorithm's buffer, and what kind of buffer it is."""
    return {"on-policy": ("n_steps", "rollout"), "off-policy": ("buffer_size", "replay")}.get(
        algorithm.family, ("", "")
    )


def _nbytes(space: spaces.Space[Any]) -> int:
    if isinstance(space, spaces.Dict):
        return sum(_nbytes(part) for part in space.spaces.values())
    return prod(space.shape or (1,)) * (space.dtype.itemsize if space.dtype is not None else 8)


def save_archive(model: BaseAlgorithm, archive: Path) -> None:
    """Write the archive whole or not at all."""
    try:
        with whole_file(archive) as file:
            model.save(file)
    except OSError as error:
        raise BadInput(f"cannot be written: {error.strerror}", path=archive) from error
