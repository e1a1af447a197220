"""Keeps what the rules knew about producers at an offset, as bytes that storage does not understand.

A snapshot is the checkpoint file `<offset, 20 digits>.snapshot`. Its owner folds the batch headers from that offset on.
"""

import re

from penstock.storage.files import Files
from penstock.storage.files.checkpoint import read_checkpoint, write_checkpoint

SUFFIX = ".snapshot"
_KIND = b"SNAP"
_NAME = re.compile(r"\d{20}" + re.escape(SUFFIX))
_KEPT = 2


class ProducerSnapshots:
    """The newest two are kept: one, and one to fall back on when the log is truncated below it."""

    def __init__(self, files: Files, directory: str, names: list[str]) -> None:
        self._files = files
        self._directory = directory
        self._offsets = sorted(int(name.removesuffix(SUFFIX)) for name in names if _NAME.fullmatch(name))

    @property
    def offsets(self) -> tuple[int, ...]:
        return tuple(self._offsets)

    def save(self, offset: int, data: bytes, *, version: int) -> None:
        """Durable when it returns. The version is the owner's."""
        write_checkpoint(self._files, self._path(offset), _KIND, version, data)
        self._offsets = sorted({*self._offsets, offset})
        for old in self._offsets[:-_KEPT]:
            self._remove(old)

    def latest(self, *, version: int) -> tuple[int, bytes] | None:
        """The newest snapshot and its offset, if there is any. `version` is the newest that the owner can read."""
        if not self._offsets:
            return None
        data = read_checkpoint(self._files, self._path(self._offsets[-1]), _KIND, version)
        return None if data is None else (self._offsets[-1], data)

    def truncate(self, end_offset: int) -> bool:
        """Remove what was taken beyond the log's new end. True if anything went; the caller syncs the directory."""
        beyond = [offset for offset in self._offsets if offset > end_offset]
        for offset in beyond:
            self._remove(offset)
        return bool(beyond)

    def _remove(self, offset: int) -> None:
        self._files.unlink(self._path(offset))
        self._offsets.remove(offset)

    def _path(self, offset: int) -> str:
        return f"{self._directory}/{offset:020}{SUFFIX}"
