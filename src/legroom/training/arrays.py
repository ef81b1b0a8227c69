"""Arrays to files and back, without loss and without pickle; and trees of plain values and arrays as JSON.

Networks and optimizers go into safetensors files, which every tool of the trade reads; all else is raw bytes one after
the other, found through an index in the checkpoint's JSON. Writing streams straight from the arrays and hashes on the
way: a copy of the networks would be the one thing a checkpoint needs memory for.

NumPy has no bfloat16 and no float8. Such a tensor is an array of a record with one field, named as torch names the
dtype (`BFLOAT16 = [("bfloat16", "<u2")]`): the bytes are right, the name is kept, and nothing can be computed with it.

An environment's state is whatever it says it is: nested dicts and lists of numbers, text and arrays. JSON keeps all of
it but arrays, NumPy's own scalars, tuples, bytes and keys that are no text; those become small marked objects.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np
import safetensors

from legroom.errors import BadInput
from legroom.model.files import open_plain

BFLOAT16 = np.dtype([("bfloat16", "<u2")])
_FLOAT8 = ("float8_e4m3fn", "float8_e5m2")
# torch's and NumPy's name of a dtype -> its code in a safetensors file
SAFETENSORS_CODES = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "uint16": "U16", "int16": "I16", "uint32": "U32", "int32": "I32",
    "uint64": "U64", "int64": "I64", "float16": "F16", "bfloat16": "BF16", "float32": "F32", "float64": "F64",
    "complex64": "C64", "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2",
}  # fmt: skip
_NAMES = {code: name for name, code in SAFETENSORS_CODES.items()}
_RAW_KINDS = frozenset("biufcSU")  # what is nothing but its bytes
_ALIGNMENT = 64
# which has no annotations: name and what is known of a tensor, for each
_deserialize: Callable[[bytes], list[tuple[str, dict[str, Any]]]] = safetensors.deserialize

Index = dict[str, dict[str, Any]]


class HashedFile:
    """A file that knows the SHA-256 and the size of what has been written to it."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._hash, self.nbytes = file, hashlib.sha256(), 0

    def write(self, data: bytes | memoryview) -> None:
        self._file.write(data)
        self._hash.update(data)
        self.nbytes += len(data)

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest()


def dtype_name(dtype: np.dtype) -> str:
    """Return the name under which `dtype_of` finds the dtype again, byte order included."""
    return dtype.names[0] if dtype.names else dtype.str


def dtype_of(name: str) -> np.dtype:
    """Return the dtype of that name.

    Raises:
        ValueError: none that is nothing but its bytes has it.
    """
    if name == "bfloat16":
        return BFLOAT16
    if name in _FLOAT8:
        return np.dtype([(name, "u1")])
    try:
        dtype = np.dtype(str(name))  # None would be float64
    except TypeError as wrong:
        raise ValueError(f"unknown dtype {name!r}") from wrong
    if dtype.kind not in _RAW_KINDS or dtype.names:
        raise ValueError(f"dtype {name!r} is not plain bytes")
    return dtype


def is_raw(array: np.ndarray) -> bool:
    """Return whether the array is nothing but its bytes: no objects, no records of several fields."""
    names = array.dtype.names
    return array.dtype.kind in _RAW_KINDS or (names is not None and len(names) == 1 and names[0] in SAFETENSORS_CODES)


def raw_bytes(array: np.ndarray) -> memoryview:
    """Return the array's bytes in C order, little-endian; copied only where it is laid out otherwise."""
    if array.dtype.byteorder == ">" or (array.dtype.byteorder == "=" and not np.little_endian):
        array = array.astype(array.dtype.newbyteorder("<"))
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data if array.size else memoryview(b"")


def write_safetensors(file: HashedFile, tensors: Mapping[str, np.ndarray]) -> None:
    """Write one safetensors file, widest dtypes first so that every tensor is aligned.

    Raises:
        ValueError: the format has no such dtype.
    """
    header: dict[str, Any] = {}
    order = sorted(tensors, key=lambda name: (-tensors[name].dtype.itemsize, name))
    at = 0
    for name in order:
        array = tensors[name]
        kind = array.dtype.names[0] if array.dtype.names else array.dtype.name
        if kind not in SAFETENSORS_CODES:
            raise ValueError(f"{name}: safetensors has no dtype {kind}")
        header[name] = {
            "dtype": SAFETENSORS_CODES[kind],
            "shape": list(array.shape),
            "data_offsets": [at, at + array.nbytes],
        }
        at += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    file.write(len(text).to_bytes(8, "little") + text)
    for name in order:
        file.write(raw_bytes(tensors[name]))


def read_safetensors(path: Path) -> dict[str, np.ndarray]:
    """Return the tensors of a safetensors file, by name.

    Raises:
        BadInput: it cannot be read or is no such file.
    """
    try:
        with open_plain(path) as file:
            found = _deserialize(file.read())
        return {
            name: np.frombuffer(bytearray(entry["data"]), _dtype_of_code(entry["dtype"])).reshape(entry["shape"])
            for name, entry in found
        }
    except (OSError, ValueError, KeyError, safetensors.SafetensorError) as error:
        raise BadInput(f"cannot be read: {error}", path=path, hint="use an earlier checkpoint") from error


def write_raw(file: HashedFile, arrays: Mapping[str, np.ndarray]) -> Index:
    """Write arrays one after the other and return where each is."""
    index: Index = {}
    for name, array in arrays.items():
        file.write(bytes(-file.nbytes % _ALIGNMENT))
        index[name] = {"dtype": dtype_name(array.dtype), "shape": list(array.shape), "at": file.nbytes}
        file.write(raw_bytes(array))
    return index


def read_raw(path: Path, index: Index) -> dict[str, np.ndarray]:
    """Return the arrays of a file that `write_raw` wrote.

    Raises:
        BadInput: it cannot be read or is not what the index says.
    """
    found = {}
    try:
        with open_plain(path) as file:
            for name, entry in index.items():
                array = np.empty(tuple(entry["shape"]), dtype_of(entry["dtype"]))
                file.seek(entry["at"])
                if array.size and file.readinto(array.reshape(-1).view(np.uint8).data) != array.nbytes:
                    raise ValueError(f"it ends within {name}")
                found[name] = array
    except (OSError, ValueError, KeyError, TypeError, MemoryError, OverflowError) as error:
        raise BadInput(f"cannot be read: {error}", path=path, hint="use an earlier checkpoint") from error
    return found


def parameters_sha256(state: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a state dict: its tensors in name order, raw little-endian bytes and nothing else.

    Args:
        state: arrays, or torch's tensors on any device; torch itself is not needed to hash them.
    """
    digest = hashlib.sha256()
    for name in sorted(state):
        digest.update(raw_bytes(_as_array(state[name])))
    return digest.hexdigest()


def _as_array(value: Any) -> np.ndarray:
    if isinstance(value, np.ndarray) or not hasattr(value, "detach"):
        return np.asarray(value)
    tensor = value.detach().cpu().contiguous().reshape(-1)
    try:
        array: np.ndarray = tensor.numpy()
    except TypeError:  # a dtype that NumPy does not have: only its bytes matter here
        array = tensor.view(tensor.new_empty(0).byte().dtype).numpy()
    return array


def _dtype_of_code(code: str) -> np.dtype:
    # older releases of safetensors give torch's name of a dtype, newer ones the file's code
    return dtype_of(_NAMES.get(code, code))


MARK = "$"


class NotPlain(TypeError):
    """A value that is not plain data; the text says where it stands and what it is."""


def take_apart(tree: Any, prefix: str, arrays: dict[str, np.ndarray]) -> Any:
    """Return the tree as JSON; its arrays are added to `arrays`, under names that begin with `prefix`.

    Raises:
        NotPlain: something in it is neither plain data nor an array of plain numbers or text.
    """
    return _apart(tree, prefix, arrays, "")


def put_together(node: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """Return the tree that `take_apart` took apart.

    Raises:
        ValueError, KeyError: it is not one.
    """
    if isinstance(node, list):
        return [put_together(entry, arrays) for entry in node]
    if not isinstance(node, dict):
        return node
    marked = next(iter(node)) if len(node) == 1 else ""
    match marked:
        case "$array":
            return arrays[node[marked]]
        case "$scalar":
            dtype, value = node[marked]
            return np.dtype(dtype).type(value)
        case "$item":
            return arrays[node[marked]][()]
        case "$bytes":
            return arrays[node[marked]].tobytes()
        case "$tuple":
            return tuple(put_together(entry, arrays) for entry in node[marked])
        case "$pairs":
            return {put_together(k, arrays): put_together(v, arrays) for k, v in node[marked]}
    return {key[1:] if key.startswith(MARK) else key: put_together(entry, arrays) for key, entry in node.items()}


def _apart(tree: Any, prefix: str, arrays: dict[str, np.ndarray], where: str) -> Any:
    part = partial(_apart, prefix=prefix, arrays=arrays)
    match tree:
        case np.generic():  # before float: NumPy's float64 is one
            if tree.dtype.kind in "biuf" and tree.dtype.itemsize <= 8:
                return {"$scalar": [tree.dtype.str, tree.item()]}
            return {"$item": _add(np.asarray(tree), prefix, arrays)}
        case None | bool() | int() | float() | str():
            return tree
        case np.ndarray() if is_raw(tree):
            return {"$array": _add(tree, prefix, arrays)}
        case np.ndarray():
            raise NotPlain(f"{where or 'it'} is an array of {tree.dtype}")
        case bytes() | bytearray():
            return {"$bytes": _add(np.frombuffer(tree, np.uint8), prefix, arrays)}
        case list():
            return [part(entry, where=f"{where}[{i}]") for i, entry in enumerate(tree)]
        case tuple():
            return {"$tuple": part(list(tree), where=where)}
        case Mapping() if all(isinstance(key, str) for key in tree):
            return {_marked(key): part(entry, where=f"{where}.{key}".strip(".")) for key, entry in tree.items()}
        case Mapping():
            key_where = f"a key of {where or 'it'}"
            return {"$pairs": [[part(k, where=key_where), part(v, where=f"{where}[{k!r}]")] for k, v in tree.items()]}
    raise NotPlain(f"{where or 'it'} is a {type(tree).__name__}")


def _marked(key: str) -> str:
    return MARK + key if key.startswith(MARK) else key


def _add(array: np.ndarray, prefix: str, arrays: dict[str, np.ndarray]) -> str:
    name = f"{prefix}/{len(arrays)}"
    arrays[name] = array
    return name
