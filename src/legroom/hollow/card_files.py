"""`torch.save` and `torch.load` of hollow tensors. Values that do not exist are not written as gigabytes of zeros."""

from __future__ import annotations

from typing import Any

import torch

from .dispatching import Follower
from .fake_tensors import unwritten

_WRITTEN_AT_MOST = 1 << 20  # zeros for missing values up to this size; a hole in the file beyond it


def install(follower: Follower) -> None:
    """Let storages of a card be saved, loaded and copied."""
    storage: Any = torch.UntypedStorage
    to_cpu, clone = storage.cpu, storage.clone
    missing: dict[int, Any] = {}  # storages on the host that stand for values that do not exist

    def cpu(self: Any) -> Any:
        record = follower.records.get(self._cdata)
        if record is None:
            return to_cpu(self)
        if record.shadow is not None:
            return record.shadow.clone()
        found = unwritten((self.nbytes(),), torch.uint8).untyped_storage()
        if self.nbytes() > _WRITTEN_AT_MOST:
            missing[found._cdata] = found
        return found

    def copied(self: Any) -> Any:
        record = follower.records.get(self._cdata)
        if record is None:
            return clone(self)
        fresh = torch.empty(self.nbytes(), dtype=torch.uint8, device=record.card.device).untyped_storage()
        if record.shadow is not None:
            follower.records[fresh._cdata].shadow = record.shadow.clone()
        return fresh

    def place(values: Any, location: str) -> Any:
        """Return values from a file as a storage of a card."""
        if not location.startswith("cuda"):
            return None
        card = follower.card_at(torch.device(location).index)
        fresh = torch.empty(values.nbytes(), dtype=torch.uint8, device=card.device).untyped_storage()
        if fresh.nbytes() and fresh.nbytes() <= follower.shadows.small:
            follower.records[fresh._cdata].shadow = values.clone() if values.device.type == "cpu" else None
        return fresh

    def tag(values: Any) -> Any:
        record = follower.records.get(getattr(values, "_untyped_storage", values)._cdata)
        return None if record is None else str(record.card.device)

    storage.cpu, storage.clone = cpu, copied
    serialization: Any = torch.serialization
    serialization.register_package(5, tag, place)  # before PyTorch's own, which are tried from 10 on
    save = serialization._save
    streams: set[int] = set()  # writers of archives into files that cannot leave room: members of another archive
    begin = serialization._open_zipfile_writer_buffer.__init__

    def opened(self: Any, buffer: Any) -> None:
        begin(self, buffer)
        if not getattr(buffer, "seekable", bool)():
            streams.add(id(self.file_like))

    serialization._open_zipfile_writer_buffer.__init__ = opened

    class Writer:
        """Writes records of an archive, and leaves room for values that do not exist."""

        def __init__(self, file: Any) -> None:
            self._file = file
            self.left_out = 0

        def __getattr__(self, name: str) -> Any:
            return getattr(self._file, name)

        def write_record(self, name: str, content: Any, nbytes: int) -> None:
            if isinstance(content, torch.UntypedStorage) and missing.pop(content._cdata, None) is not None:
                self.left_out += nbytes
                self._file.write_record_metadata(name, nbytes)
            else:
                self._file.write_record(name, content, nbytes)

    def saved(obj: Any, zip_file: Any, *args: Any, **kwargs: Any) -> Any:
        whole = id(zip_file) in streams or not hasattr(zip_file, "write_record_metadata")
        streams.discard(id(zip_file))
        writer = zip_file if whole else Writer(zip_file)
        result = save(obj, writer, *args, **kwargs)
        if writer is not zip_file and writer.left_out:
            follower.journal.json("note", text=f"torch.save: {writer.left_out:,} bytes without values were not written")
        missing.clear()
        return result

    serialization._save = saved
