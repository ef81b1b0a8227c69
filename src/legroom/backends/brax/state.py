"""Everything that a brax training carries from one step to the next, as arrays and JSON, and back to the bit.

brax's own checkpoints hold the networks and the normaliser: no optimizer, no step count, no environments, no keys, so
that what goes on from them is another training. Here the whole carry is kept, leaf by leaf in tree order, with a list
of names, dtypes and shapes that a resume is compared with. Nothing has to be guessed from the files: what a tree looks
like is known to the code that makes it (`jax.eval_shape`), and the checkpoint has to fit.

brax keeps one copy of what is learned per device, all equal, with the devices as first axis; here one is kept. SAC's
replay buffer is another on each of them.

What is learned is one safetensors file, which needs neither jax nor legroom to be read, and that is what an export is.
Names are paths of brax's own trees: `params/policy/…` and `params/value/…` with flax's layers, `normalizer/…` with the
running statistics of observations. brax's inference function takes (normalizer, policy, value), nested as named. SAC
has `params/policy`, `params/q`, `params/target_q` and `params/alpha` (a logarithm), and takes (normalizer, policy).
"""

import hashlib
import shutil
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from legroom.errors import BadInput
from legroom.model.files import whole_file
from legroom.model.learner import Exported, SavedState
from legroom.training.arrays import dtype_name, is_raw, raw_bytes
from legroom.training.checkpoint import newest_checkpoint
from legroom.training.run_folder import check_export

BACKEND = "brax"
VERSIONS = {name: version(name) for name in ("jax", "jaxlib", "brax", "numpy")}
# Group of arrays -> what is in it. The first two become safetensors files, which other tools can read.
POLICY, OPTIMIZER, COUNTERS, ENVS, KEYS, REPLAY = "policy", "optimizer", "counters", "envs", "keys", "replay"
LEARNED = (POLICY, OPTIMIZER, COUNTERS)
SAC_NETWORKS, SAC_OPTIMIZERS = ("policy", "q", "target_q", "alpha"), ("policy", "q", "alpha")
COUNTS = ("env_steps", "gradient_steps")  # the second is SAC's
EXPORTED = "policy.safetensors"
EXPORT_NOTES = ("all networks and the statistics that normalise observations, as brax names them",)
RESETS = "resets"  # the name of the environments' own keys among the keys


@dataclass(frozen=True)
class Carry:
    """What one training step hands to the next."""

    training_state: Any  # brax's: parameters, optimizer, normaliser, steps
    env_state: Any  # of all environments
    # random keys by name: of the next step, and of those that the epochs after it are drawn from
    keys: Mapping[str, jax.Array]
    replay: Any | None = None  # the replay buffer; None where the algorithm has none

    @property
    def arguments(self) -> tuple[Any, ...]:
        """What brax's epoch takes before the keys, and gives back."""
        state = self.training_state, self.env_state
        return state if self.replay is None else (*state, self.replay)

    @property
    def step(self) -> int:
        """Environment steps made so far; brax counts them in two halves of 32 bits."""
        steps = self.training_state.env_steps
        return (int(_first_copy(steps.hi)) << 32) | int(_first_copy(steps.lo))


@dataclass(frozen=True)
class Restored:
    """A carry from a checkpoint."""

    training_state: Any
    env_state: Any | None  # None where the environments of the checkpoint are others in number or kind: they begin anew
    keys: dict[str, jax.Array]
    replay: Any | None
    data: dict[str, Any]
    why_not_exact: str  # in a few words; "" where going on gives the bits of an uninterrupted training


def capture(carry: Carry, device: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return the carry's arrays by `group/name`, and what describes them; arrays may share the carry's memory.

    Raises:
        BadInput: a leaf has a dtype that is not plain bytes.
    """
    arrays: dict[str, np.ndarray] = {}
    trees: dict[str, list[list[Any]]] = {}
    for group, tree in _groups(carry).items():
        entries = trees[group] = []
        for name, leaf in _leaves(tree):
            array = _plain(_first_copy(leaf) if group in LEARNED else leaf)
            if not is_raw(array):
                raise BadInput(f"{group} {name} cannot be saved: it is an array of {leaf.dtype}")
            arrays[f"{group}/{name}"] = array
            entries.append(_described(group, name, leaf))
    return arrays, {"backend": BACKEND, "versions": VERSIONS, "device": device, "trees": trees}


def restore(checkpoint: SavedState, like: Carry, device: str) -> Restored:
    """Return the carry that a checkpoint holds.

    Args:
        like: what the run's own carry looks like; arrays or only their shapes, but its keys are there.

    Raises:
        BadInput: it is of something else; names the first difference.
    """
    data = checkpoint.data
    if data.get("backend") != BACKEND:
        raise _misfit(checkpoint, "it was written by another backend")
    wanted = _groups(like)
    found: dict[str, Any] = {}
    why = _unlike(data, device)
    for group, tree in wanted.items():
        own = [_described(group, name, leaf) for name, leaf in _leaves(tree)]
        theirs = data.get("trees", {}).get(group, [])
        if difference := _difference(own, theirs):
            if group != ENVS:
                raise _misfit(checkpoint, f"its {group} are others: {difference}")
            found[group], why = None, f"the environments start over: {difference}"
            continue
        arrays = checkpoint.tensors(group)
        leaves = [_leaf(arrays[name], like_leaf, copies=group in LEARNED) for name, like_leaf in _leaves(tree)]
        found[group] = jax.tree.unflatten(jax.tree.structure(tree), leaves)
    envs, keys = found[ENVS], found[KEYS]
    if RESETS in like.keys:
        keys[RESETS] = like.keys[RESETS] if envs is None else envs[RESETS]
    training_state = _with_learned(like.training_state, found)
    return Restored(training_state, None if envs is None else envs["state"], keys, found.get(REPLAY), data, why)


def parameters_sha256(training_state: Any) -> str:
    """Return the SHA-256 of all networks' parameters: leaves in tree order, raw little-endian bytes."""
    digest = hashlib.sha256()
    for leaf in jax.tree.leaves(networks(training_state)):
        digest.update(raw_bytes(_first_copy(leaf)))
    return digest.hexdigest()


def without_weak_types(tree: Any) -> Any:
    """Return the tree with dtypes that are no longer open to promotion, so that what is compiled once fits always."""
    return jax.tree.map(lambda leaf: leaf if _is_key(leaf) else jnp.asarray(leaf, jnp.asarray(leaf).dtype), tree)


def networks(training_state: Any) -> Any:
    """Return the parameters of all networks, one tree; PPO has it so, SAC has a field for each."""
    if hasattr(training_state, "params"):
        return training_state.params
    return {name: getattr(training_state, f"{name}_params") for name in SAC_NETWORKS}


def optimizers(training_state: Any) -> Any:
    """Return what the optimizers remember, one tree."""
    if hasattr(training_state, "params"):
        return training_state.optimizer_state
    return {name: getattr(training_state, f"{name}_optimizer_state") for name in SAC_OPTIMIZERS}


def _counters(training_state: Any) -> dict[str, Any]:
    return {name: getattr(training_state, name) for name in COUNTS if hasattr(training_state, name)}


def _with_learned(training_state: Any, found: dict[str, Any]) -> Any:
    """Return the training state with what is learned replaced."""
    params, memory = found[POLICY]["params"], found[OPTIMIZER]
    if hasattr(training_state, "params"):
        fields = {"params": params, "optimizer_state": memory}
    else:
        fields = {f"{name}_params": tree for name, tree in params.items()}
        fields |= {f"{name}_optimizer_state": tree for name, tree in memory.items()}
    return training_state.replace(normalizer_params=found[POLICY]["normalizer"], **fields, **found[COUNTERS])


def _groups(carry: Carry) -> dict[str, Any]:
    state, keys = carry.training_state, carry.keys
    groups = {
        POLICY: {"params": networks(state), "normalizer": state.normalizer_params},
        OPTIMIZER: optimizers(state),
        COUNTERS: _counters(state),
        # one key per environment, to begin anew with: as many as there are
        ENVS: {"state": carry.env_state} | {name: key for name, key in keys.items() if name == RESETS},
        KEYS: {name: key for name, key in keys.items() if name != RESETS},
    }
    return groups if carry.replay is None else groups | {REPLAY: carry.replay}


def _leaves(tree: Any) -> list[tuple[str, Any]]:
    """Return the leaves in tree order with names that are theirs alone."""
    found = [
        (jax.tree_util.keystr(path, simple=True, separator="/"), leaf)
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
    ]
    often = Counter(name for name, _ in found)
    return [(name if often[name] == 1 else f"{name}#{at}", leaf) for at, (name, leaf) in enumerate(found)]


def _first_copy(leaf: Any) -> np.ndarray:
    first: np.ndarray = np.asarray(leaf.addressable_shards[0].data)[0]
    return first


def _described(group: str, name: str, leaf: Any) -> list[Any]:
    return [name, _kind(leaf), list(leaf.shape[1:] if group in LEARNED else leaf.shape)]


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(getattr(leaf, "dtype", np.float32), jax.dtypes.prng_key)


def _kind(leaf: Any) -> str:
    return str(leaf.dtype) if _is_key(leaf) else dtype_name(_named(np.dtype(leaf.dtype)))


def _named(dtype: np.dtype) -> np.dtype:
    """Return the dtype as files know it: what NumPy lacks (bfloat16) is a record of one field with its name."""
    return np.dtype([(dtype.name, f"<u{dtype.itemsize}")]) if dtype.kind == "V" and not dtype.names else dtype


def _plain(leaf: Any) -> np.ndarray:
    array = np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)
    return array.view(_named(array.dtype))


def _leaf(array: np.ndarray, like: Any, *, copies: bool) -> jax.Array:
    if copies:
        array = np.broadcast_to(array, like.shape)
    if _is_key(like):
        impl = like.dtype._impl.name  # shapes have no key_impl()
        key: jax.Array = jax.random.wrap_key_data(jnp.array(array), impl=impl)
        return key
    return jnp.array(array.view(np.dtype(like.dtype)))  # a copy: what is donated must be jax's own


def _difference(own: list[list[Any]], theirs: list[list[Any]]) -> str:
    for mine, other in zip(own, theirs, strict=False):
        if mine != other:
            return f"{other[0]} is {other[1]}{other[2]} there, and {mine[0]} is {mine[1]}{mine[2]} here"
    return "" if len(own) == len(theirs) else f"{len(theirs)} arrays there, {len(own)} here"


def _unlike(data: Mapping[str, Any], device: str) -> str:
    """Return what may make the same program compute other last bits than where the checkpoint was written."""
    for name, ours in VERSIONS.items():
        theirs = data.get("versions", {}).get(name)
        if theirs != ours:
            return f"{name} was {theirs}, now {ours}"
    there = data.get("device")
    return "" if there == device else f"it ran on {there}, now on {device}"


def _misfit(checkpoint: SavedState, what: str) -> BadInput:
    return BadInput(
        f"does not fit this run: {what}",
        path=checkpoint.path,
        hint="resume with the run it was started with, or start over in another --out",
    )


def export_brax(directory: Path, archive: Path, *, force: bool = False) -> Exported:
    """Write what the last good checkpoint of a run has learned, or the one checkpoint that `directory` is.

    Raises:
        BadInput: there is no good checkpoint, the file exists (and not `force`), or it cannot be written.
    """
    check_export(directory, archive, force=force)
    checkpoint = newest_checkpoint(directory)
    if checkpoint is None:
        raise BadInput("holds no good checkpoint", path=directory, hint="legroom train RUN --out DIR writes them")
    if archive.suffix != ".safetensors":
        raise BadInput("a brax policy is exported as safetensors", path=archive, hint="name it POLICY.safetensors")
    try:
        with whole_file(archive) as file, checkpoint.file(EXPORTED).open("rb") as policy:
            shutil.copyfileobj(policy, file)
    except OSError as error:
        raise BadInput(f"cannot be written: {error.strerror or error}", path=archive) from error
    return Exported(archive, checkpoint.data["algorithm"], checkpoint.step, archive.stat().st_size, EXPORT_NOTES)
