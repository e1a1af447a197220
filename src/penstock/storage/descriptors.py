"""Open descriptors by path, kept in least-recently-used order up to a limit and pinned while somebody uses them."""

from collections import OrderedDict
from types import TracebackType
from typing import TypeAlias

from penstock.storage.files import Files


class Descriptors:
    """Opens files when they are first pinned and closes the least recently used one that is not pinned.

    A pinned descriptor is never closed: its number would be given to another file, whose bytes would then be sent to a
    client. When more than `limit` are pinned there are more than `limit` open, until enough are released. Belongs to
    one thread; a pin may be used in another one meanwhile.
    """

    __slots__ = ("_files", "_limit", "_open", "_idle", "_count", "_closed")

    def __init__(self, files: Files, *, limit: int) -> None:
        self._files = files
        self._limit = limit
        self._open: dict[_Key, _Entry] = {}
        self._idle: OrderedDict[_Key, _Entry] = OrderedDict()
        self._count = 0
        self._closed = False

    @property
    def open_count(self) -> int:
        return self._count

    def pin(self, path: str, *, write: bool = False) -> "Pinned":
        """Opens the file unless it is; a descriptor for writing and one for reading are two."""
        key = (path, write)
        entry = self._open.get(key)
        if entry is None:
            entry = self._open_anew(key)
        elif entry.pins == 0:
            del self._idle[key]
        entry.pins += 1
        return Pinned(self, entry)

    def forget(self, path: str) -> None:
        """Closes what is open of the path, once it is not pinned; later pins open it anew.

        To be called before the path comes to mean another file: on unlink and rename.
        """
        for key in ((path, False), (path, True)):
            entry = self._open.pop(key, None)
            if entry is not None:
                entry.forgotten = True
                if entry.pins == 0:
                    del self._idle[key]
                    self._close(entry)

    def close(self) -> None:
        """Closes everything, what is pinned when it is released."""
        self._closed = True
        for path, _ in list(self._open):
            self.forget(path)

    def _open_anew(self, key: "_Key") -> "_Entry":
        assert not self._closed, "pinned after close"
        self._shrink(self._limit - 1)
        path, write = key
        entry = self._open[key] = _Entry(key, self._files.open(path, write=write))
        self._count += 1
        return entry

    def _shrink(self, limit: int) -> None:
        while self._count > limit and self._idle:
            key, entry = self._idle.popitem(last=False)
            del self._open[key]
            self._close(entry)

    def _close(self, entry: "_Entry") -> None:
        self._count -= 1
        self._files.close(entry.fd)

    def _released(self, entry: "_Entry") -> None:
        """The last pin is gone."""
        if entry.forgotten:
            self._close(entry)
            return
        self._idle[entry.key] = entry
        if self._count > self._limit:
            self._shrink(self._limit)


class Pinned:
    """One use of a descriptor, which stays open and keeps its number until `release` or the end of a `with` block."""

    __slots__ = ("fd", "_descriptors", "_entry")

    def __init__(self, descriptors: Descriptors, entry: "_Entry") -> None:
        self.fd = entry.fd
        self._descriptors = descriptors
        self._entry = entry

    def release(self) -> None:
        assert self.fd >= 0, "released twice"
        self.fd = -1
        entry = self._entry
        entry.pins -= 1
        if entry.pins == 0:
            self._descriptors._released(entry)

    def __enter__(self) -> "Pinned":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


_Key: TypeAlias = tuple[str, bool]


class _Entry:
    __slots__ = ("key", "fd", "pins", "forgotten")

    def __init__(self, key: _Key, fd: int) -> None:
        self.key = key
        self.fd = fd
        self.pins = 0
        self.forgotten = False
