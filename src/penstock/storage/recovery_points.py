"""Records how far each log of a data folder is known to be flushed, which is where its recovery begins after a crash.

Payload of the checkpoint `recovery-points` (version 1), little-endian, for each log:

    +-------------+--------+--------------+-----------+
    | name length | name   | offset i64   | next ...  |
    | u16         | UTF-8  |              |           |
    +-------------+--------+--------------+-----------+
"""

from struct import Struct
from threading import Lock

from penstock.storage.files import Files
from penstock.storage.files.checkpoint import read_checkpoint, write_checkpoint

FILE_NAME = "recovery-points"
_KIND = b"RCVP"
_VERSION = 1
_LENGTH = Struct("<H")
_OFFSET = Struct("<q")


class RecoveryPoints:
    """Points are set by the owner of the logs; `save` may run in a thread meanwhile."""

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._path = f"{directory}/{FILE_NAME}"
        self._points = unpack_offsets(read_checkpoint(files, self._path, _KIND, _VERSION) or b"")
        self._saved = dict(self._points)
        self._saving = Lock()

    def get(self, name: str) -> int:
        return self._points.get(name, 0)

    def set(self, name: str, offset: int) -> None:
        self._points[name] = offset

    def get_saved(self, name: str) -> int:
        """The point that a crash would leave, unless it was lowered and not saved yet."""
        return min(self._saved.get(name, 0), self.get(name))

    def remove(self, name: str) -> None:
        self._points.pop(name, None)

    def save(self) -> None:
        """Durable when it returns. Two saves at once come one after the other, and the later has the later points."""
        with self._saving:
            points = dict(self._points)
            write_checkpoint(self._files, self._path, _KIND, _VERSION, pack_offsets(points))
            self._saved = points


def pack_offsets(offsets: dict[str, int]) -> bytes:
    parts = []
    for name, offset in offsets.items():
        encoded = name.encode()
        parts += [_LENGTH.pack(len(encoded)), encoded, _OFFSET.pack(offset)]
    return b"".join(parts)


def unpack_offsets(payload: bytes) -> dict[str, int]:
    """The payload's checksum has been checked, so that it has the form it was written in."""
    offsets, position = {}, 0
    while position < len(payload):
        (length,) = _LENGTH.unpack_from(payload, position)
        position += _LENGTH.size
        name = payload[position : position + length].decode()
        (offsets[name],) = _OFFSET.unpack_from(payload, position + length)
        position += length + _OFFSET.size
    return offsets
