"""Checkpoints to SB3's own archives, and back.

`model.zip` is what `PPO.load` loads: parameters, optimizers, hyperparameters, spaces. It is made from the checkpoint
and from `run.json`, without making the environment. Buffers in it are SB3's own, so that it loads without legroom,
unless SB3 could not even allocate them.

The way back runs what the archive says: SB3 keeps half of it as cloudpickle, which is a program. That is why it takes a
word of trust. An archive knows neither its algorithm (told from the hyperparameters in it) nor its environments, so
what becomes of it can be gone on with by `legroom train RUN --resume`, RUN saying the rest, and approximately.
"""

import copy
import json
import lzma
import shutil
import warnings
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

from gymnasium import spaces
from stable_baselines3.common.base_class import BaseAlgorithm

from legroom.backends.base import algorithm_names, find_algorithm
from legroom.backends.sb3.building import class_of, importable
from legroom.backends.sb3.constructor_calls import run_from_model
from legroom.backends.sb3.hollow_buffers import StubVecEnv
from legroom.backends.sb3.lean_replay import LeanReplayBuffer
from legroom.backends.sb3.lean_storage import lean_rollout_class
from legroom.backends.sb3.making import make_model
from legroom.backends.sb3.state import capture, policy_arrays, restore_learned, saved_spaces
from legroom.environments.own_code import own_code
from legroom.errors import BadInput, LegroomError
from legroom.model.algorithms import Algorithm
from legroom.model.archive import Exported, Imported
from legroom.model.files import new_temporary, read_document, whole_file, write_whole
from legroom.model.run import MemorySpec, Run
from legroom.model.sealed import seal, unseal
from legroom.training.archives import IMPORTED, RUN, check_export, check_import
from legroom.training.checkpoint import Checkpoints, newest_checkpoint, parameters_sha256
from legroom.training.durable import put_in_place
from legroom.training.run_folder import RunFolder
from legroom.units import format_size

LARGEST_PLAIN_BUFFER = 4 << 30  # bytes; PPO.load allocates it, whatever the model is loaded for
LARGEST_DESCRIPTION = 32 << 20  # bytes, unpacked; classes of a user's are in it
_BUFFER_ARGUMENTS = ("_buffer_class", "_buffer_kwargs")
TRUST = "--trust, for files you trust"
WEIGHTS = (".pth", ".pt")
MOST_TIMES, SMALL_ARCHIVE = 4, 64 << 20  # an archive may unpack to so many times its size, and so many bytes more
CHUNK = 1 << 16
MOST_MEMBERS = 100_000  # with the records in its weights, one or two per tensor
IMPORTED_WHY = "imported from an archive, which holds no environments"

# A hyperparameter that only this algorithm has, of those that share their policies' classes; the first that fits.
_TELLTALE = (
    ("top_quantiles_to_drop_per_net", "TQC"), ("cg_max_steps", "TRPO"), ("n_delta", "ARS"),
    ("target_noise_clip", "TD3"), ("target_entropy", "SAC"), ("priority_alpha", "DoubleDQN"),
    ("exploration_fraction", "DQN"), ("clip_range", "PPO"),
    ("gae_lambda", "A2C"),
)  # fmt: skip
# Where the policy's module says more: algorithms of sb3-contrib with hyperparameters of others.
_MODULES = (
    ("maskable", "MaskablePPO"), ("ppo_recurrent", "RecurrentPPO"), ("recurrent", "RecurrentPPO"),
    ("qrdqn", "QRDQN"), ("crossq", "CrossQ"),
)  # fmt: skip


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


def import_sb3(
    archive: Path, directory: Path, trust: bool, *, force: bool = False, algorithm: str | None = None
) -> Imported:
    """Make a run's folder, with one checkpoint, of an archive that SB3 wrote.

    Args:
        trust: whoever made the archive may run code here.
        force: replace the run's folder that is there.
        algorithm: where the archive does not make it clear.

    Raises:
        BadInput: it is not trusted, no such archive, cannot be loaded, or the folder is in use.
    """
    archive, directory = Path(archive), Path(directory)
    check_import(archive, directory, trust=trust, force=force)
    described = _describe(archive)
    found = _algorithm(archive, described, algorithm)
    model = _load(archive, found, described)
    run = replace(run_from_model(model), name=archive.stem, source=None)
    model.replay_buffer = None  # type: ignore[attr-defined]  # SB3 keeps it elsewhere; this one is empty
    state = capture(model)
    directory.absolute().parent.mkdir(parents=True, exist_ok=True)
    temporary = new_temporary(directory.absolute().parent)
    step = model.num_timesteps
    kept = {"iteration": 0, "why_not_exact": IMPORTED_WHY}
    try:
        Checkpoints(temporary).write(step, state.tensors, {**state.data, "legroom": kept})
        write_whole(temporary / IMPORTED, seal(run.model_dump()))
        put_in_place(temporary, directory.absolute())
    except OSError as error:
        raise BadInput(f"cannot be written: {error.strerror}", path=directory) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return Imported(directory, found.name, step, parameters_sha256(policy_arrays(model)))


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
    """Return the run that was trained in a folder, or that an archive imported there described."""
    run = RunFolder(folder).run()
    if run is not None:
        return run
    path = folder / IMPORTED
    try:
        return Run.model_validate(unseal(read_document(path), path).data)
    except FileNotFoundError:
        raise BadInput(f"has no {RUN}", path=folder, hint="it says what was trained; legroom train writes it") from None
    except (OSError, ValueError) as error:
        raise BadInput(f"is not a run: {error}", path=path) from error


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
    memory = MemorySpec(foreach=run.memory.foreach, activation_checkpointing=run.memory.activation_checkpointing)
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


def _describe(archive: Path) -> dict[str, Any]:
    """Return what an archive says in plain JSON; nothing of it is run.

    Raises:
        BadInput: it is no archive of SB3's.
    """
    if archive.exists() and not archive.is_file():
        raise BadInput("not a file", path=archive)
    try:
        with zipfile.ZipFile(archive) as content:
            _check_sizes(archive, content)
            described = json.loads(content.read("data"))
    except OSError as error:
        raise BadInput(f"cannot be read: {error.strerror or error}", path=archive) from error
    except (zipfile.BadZipFile, KeyError, ValueError, RuntimeError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise BadInput("not an archive of a Stable-Baselines3 model", path=archive) from error
    if not isinstance(described, dict):
        raise BadInput("not an archive of a Stable-Baselines3 model", path=archive)
    return described


def _check_sizes(archive: Path, content: zipfile.ZipFile) -> None:
    """Refuse an archive that unpacks to far more than it is: torch keeps weights as they are, which hardly compress.

    Weights are archives in the archive, whose records count, too: torch reads no further than a record declares.
    zipfile unpacks first and cuts off then, so what its members declare is compared with what they hold.

    Raises:
        BadInput: says how large it would be.
    """
    packed = archive.stat().st_size
    most = MOST_TIMES * packed + SMALL_ARCHIVE
    members, described = content.infolist(), 0
    unpacked = sum(member.file_size for member in members)
    for member in members if unpacked <= most and len(members) <= MOST_MEMBERS else ():
        described += member.file_size if member.filename == "data" else 0
        if member.filename.endswith(WEIGHTS):
            with content.open(member) as file, zipfile.ZipFile(file) as inner:
                members = [*members, *inner.infolist()]
                unpacked += sum(record.file_size for record in inner.infolist())
    if unpacked > most or described > LARGEST_DESCRIPTION or len(members) > MOST_MEMBERS:
        what = f"{len(members):,} members of {format_size(unpacked)} in a file of {format_size(packed)}"
        raise BadInput(f"is not unpacked: {what}", path=archive, hint="save the model again with Stable-Baselines3")
    for member in content.infolist():
        if not _holds_what_it_declares(content, member):
            what = f"{member.filename} holds more than the {format_size(member.file_size)} that it declares"
            raise BadInput(f"is not unpacked: {what}", path=archive, hint="save the model again with Stable-Baselines3")


def _holds_what_it_declares(content: zipfile.ZipFile, member: zipfile.ZipInfo) -> bool:
    """Unpack a member piece by piece, as far as it declares; return whether that is all there is."""
    if member.compress_type == zipfile.ZIP_STORED:
        return member.compress_size == member.file_size
    if member.compress_type != zipfile.ZIP_DEFLATED:  # SB3 stores
        return False
    packed = copy.copy(member)
    packed.compress_type, packed.file_size = zipfile.ZIP_STORED, member.compress_size
    del packed.CRC  # which is of what it unpacks to
    unpacking, left = zlib.decompressobj(-zlib.MAX_WBITS), member.file_size
    with content.open(packed) as file:
        while left >= 0 and (chunk := unpacking.unconsumed_tail or file.read(CHUNK)):
            left -= len(unpacking.decompress(chunk, min(left, CHUNK) + 1))
    return left >= 0


def _algorithm(archive: Path, described: Mapping[str, Any], given: str | None) -> Algorithm:
    """Return the algorithm that an archive is of, or the one given.

    Raises:
        BadInput: it is not to be told, or unknown.
    """
    name = given or _telltale(described)
    found = find_algorithm("sb3", name) if name else None
    if found is None:
        what = f"{name!r} is unknown" if name else "its hyperparameters do not show its algorithm"
        raise BadInput(what, path=archive, hint=f"--algo, one of {', '.join(algorithm_names('sb3'))}")
    return found


def _telltale(described: Mapping[str, Any]) -> str | None:
    policy = described.get("policy_class")
    module = str(policy.get("__module__", "")) if isinstance(policy, dict) else ""
    for part, name in _MODULES:
        if part in module:
            return name
    if described.get("policy_delay") == 1 and described.get("target_noise_clip") == 0.0:
        return "DDPG"  # which SB3 makes of TD3
    return next((name for key, name in _TELLTALE if key in described), None)


def _load(archive: Path, algorithm: Algorithm, described: Mapping[str, Any]) -> BaseAlgorithm:
    """Return the model of an archive, as SB3 loads it, with next to no buffers.

    Raises:
        BadInput: SB3 cannot load it; with its words.
    """
    kind = class_of(algorithm)
    size, storage = _buffer(algorithm)
    n_envs = described.get("n_envs")
    changes: dict[str, Any] = {}
    if size:
        changes = {size: max(2, n_envs if isinstance(n_envs, int) else 2)}
        if f"{storage}_buffer_class" in algorithm.defaults:
            changes |= {f"{storage}_buffer_class": None, f"{storage}_buffer_kwargs": {}}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model: BaseAlgorithm = kind.load(archive, device="cpu", **changes)
    except Exception as error:  # whatever the archive says was run
        raise BadInput(
            f"cannot be loaded as {algorithm.name}: {type(error).__name__}: {error}", path=archive, hint="--algo NAME"
        ) from error
    if size and isinstance(described.get(size), int):
        setattr(model, size, described[size])
    return model
