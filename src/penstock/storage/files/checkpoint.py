"""Checkpoints are small files that are replaced as a whole: a crash leaves the old content or the new, never a mixture.

 0        4        8       10        14       18
+--------+--------+-------+---------+--------+----------+
| "PSCK" | kind   | vers. | length  | CRC32C | payload  |
| 4 s    | 4 s    | u16   | u32     | u32    | length B |
+--------+--------+-------+---------+--------+----------+
Little-endian. The checksum covers kind, version, length and payload.
"""

import os.path
from struct import Struct

from penstock.protocol.crc32c import crc32c
from penstock.storage.errors import CorruptCheckpointError, UnsupportedFormatError
from penstock.storage.files.real import Files, write_all

_HEADER = Struct("<4s4sHII")
_MAGIC = b"PSCK"
TEMPORARY = ".tmp"


def write_checkpoint(files: Files, path: str, kind: bytes, version: int, payload: bytes) -> None:
    """Durable when it returns."""
    temporary = path + TEMPORARY
    _write(files, temporary, kind, version, payload, sync=True)
    files.rename(temporary, path)
    files.sync_directory(os.path.dirname(path))


def write_unsynced(files: Files, path: str, kind: bytes, version: int, payload: bytes) -> None:
    """Write a checkpoint under a temporary name. The caller has the file synced, gives it its name by a rename, and has
    that synced: of many at once each with all others."""
    _write(files, path, kind, version, payload, sync=False)


def write_first_checkpoint(files: Files, path: str, kind: bytes, version: int, payload: bytes) -> None:
    """Write a checkpoint that is not there yet. The caller has its file and its name synced before it relies on
    them."""
    _write(files, path, kind, version, payload, sync=False)


def _write(files: Files, path: str, kind: bytes, version: int, payload: bytes, *, sync: bool) -> None:
    checksum = crc32c(Struct("<4sHI").pack(kind, version, len(payload)) + payload)
    header = _HEADER.pack(_MAGIC, kind, version, len(payload), checksum)
    fd = files.open(path, write=True, create=True)
    try:
        files.truncate(fd, 0)
        write_all(files, fd, [header, payload], 0)
        if sync:
            files.sync(fd)
    finally:
        files.close(fd)


def read_checkpoint(files: Files, path: str, kind: bytes, version: int) -> bytes | None:
    """The payload, or None if there is no such file. `version` is the newest that the caller can read."""
    found = read_any_version(files, path, kind, version)
    return None if found is None else found[1]


def read_any_version(files: Files, path: str, kind: bytes, newest: int) -> tuple[int, bytes] | None:
    """The version and the payload, or None if there is no such file."""
    try:
        fd = files.open(path)
    except FileNotFoundError:
        return None
    try:
        data = files.pread(fd, files.size(fd), 0)
    finally:
        files.close(fd)
    if len(data) < _HEADER.size:
        raise _damaged(path)
    magic, found_kind, found_version, length, checksum = _HEADER.unpack_from(data)
    payload = data[_HEADER.size :]
    if magic != _MAGIC or found_kind != kind or length != len(payload):
        raise _damaged(path)
    if crc32c(Struct("<4sHI").pack(kind, found_version, length) + payload) != checksum:
        raise _damaged(path)
    if found_version > newest:
        raise UnsupportedFormatError(
            f"{path} has format {found_version}, and this Penstock reads up to {newest}; upgrade Penstock to open it"
        )
    return found_version, payload


def remove_checkpoint(files: Files, path: str) -> None:
    """Durable when it returns."""
    if files.stat(path) is not None:
        files.unlink(path)
        files.sync_directory(os.path.dirname(path))


def _damaged(path: str) -> CorruptCheckpointError:
    return CorruptCheckpointError(
        f"{path} is damaged: its checksum is wrong. Restore it, or the whole folder that it lies in, from a backup"
    )
