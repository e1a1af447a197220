"""Remembers the high watermarks of a data folder's partitions across restarts, as a hint: up to where a log was known
to be on every in-sync replica.

Payload of the checkpoint `high-watermarks` (version 1), little-endian: names and offsets as in `recovery-points`. A
hint is never above what was true when it was saved, and goes with the records that it was about.
"""

from threading import Lock
from typing import Final

from penstock.storage.errors import CorruptCheckpointError
from penstock.storage.files import Files
from penstock.storage.files.checkpoint import read_checkpoint, write_checkpoint
from penstock.storage.recovery_points import pack_offsets, unpack_offsets

FILE_NAME: Final = "high-watermarks"
_KIND: Final = b"HWMK"
_VERSION: Final = 1


class HighWatermarks:
    """Set by the owner of the partitions; `save` may run in a thread meanwhile. `damage` says why there are none,
    if a file was there that could not be read."""

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._path = f"{directory}/{FILE_NAME}"
        self._saving = Lock()
        self.damage: str | None = None
        try:
            self._offsets = unpack_offsets(read_checkpoint(files, self._path, _KIND, _VERSION) or b"")
        except CorruptCheckpointError as error:
            self.damage = str(error)
            self._offsets = {}
        self._saved = dict(self._offsets)

    def get(self, topic: str, partition: int) -> int | None:
        return self._offsets.get(f"{topic}-{partition}")

    def set(self, topic: str, partition: int, offset: int) -> None:
        self._offsets[f"{topic}-{partition}"] = offset

    def lower(self, name: str, offset: int | None) -> bool:
        """A log was cut, and ends here; None: it is gone. True if the file has to be saved: what will be written there
        is not what the hint was about."""
        if offset is None:
            self._offsets.pop(name, None)
        elif self._offsets.get(name, 0) > offset:
            self._offsets[name] = offset
        saved = self._saved.get(name)
        return saved is not None and (offset is None or saved > offset)

    def save(self) -> None:
        """Durable when it returns; nothing is written if nothing has changed. Two saves at once come one after the
        other, and the later has the later offsets."""
        with self._saving:
            offsets = dict(self._offsets)
            if offsets != self._saved:
                write_checkpoint(self._files, self._path, _KIND, _VERSION, pack_offsets(offsets))
                self._saved = offsets
