"""JSON documents that carry their own checksum, so that a flipped bit is noticed and not believed.

The checksum is one more key of the document. A separate list of checksums would have to be written after the files, and
a crash in between would leave good files that look damaged. It is taken over the parsed content, keys sorted, so that
layout does not matter.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from legroom.errors import BadInput

KEY, MARK = "checksum", "sha256:"
VERSION_KEY, VERSION = "legroom", 1


class Damaged(BadInput):
    """A document is not what was written."""


class Newer(BadInput):
    """A document was written by a later release, in a format that this one does not know."""


def seal(data: Mapping[str, Any], *, indent: int | None = 2, default: Any = None) -> bytes:
    """Return a document as JSON with its checksum."""
    content = json.loads(json.dumps(data, default=default))  # as it will be read: lists for tuples, text for keys
    content.pop(KEY, None)
    return (json.dumps(content | {KEY: MARK + _sha256(content)}, indent=indent) + "\n").encode()


def unseal(content: bytes, path: object) -> dict[str, Any]:
    """Return what a document says, without its checksum.

    Raises:
        Damaged: it is no JSON object, or not as written.
        Newer: its version is later than this release's.
    """
    data = parse(content, path, sealed=True)
    data.pop(KEY)
    return data


def parse(content: bytes, path: object, *, sealed: bool = False) -> dict[str, Any]:
    """Return what a document says whose checksum is kept elsewhere, or, where it is `sealed`, is right.

    Raises:
        Damaged, Newer: as `unseal`.
    """
    try:
        data = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise Damaged(f"is damaged: not JSON: {error}", path=path) from None
    if not isinstance(data, dict):
        raise Damaged("is damaged: not a JSON object", path=path)
    if sealed and data.get(KEY) != MARK + _sha256({key: value for key, value in data.items() if key != KEY}):
        raise Damaged("is damaged: its content does not match its checksum", path=path)
    version = data.get(VERSION_KEY, VERSION)
    if version != VERSION:
        if isinstance(version, int) and version > VERSION:
            raise newer(version, path)
        raise Damaged(f"is damaged: its version is {version!r}", path=path)
    return data


def newer(version: int, path: object) -> Newer:
    """Return the refusal of a format of a later release."""
    return Newer(
        f"was written by a newer legroom (format {version}, this one reads {VERSION})",
        path=path,
        hint="pip install --upgrade legroom",
    )


def _sha256(data: dict[str, Any]) -> str:
    text = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
