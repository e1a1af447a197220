"""Implements `Files` in memory, for tests: it is deterministic, fails any call on demand and loses power as a machine
does.

The model is as strict as POSIX lets a disk be. A sync makes durable what it names and nothing else:

- `sync` settles the bytes and size of a file, `sync_directory` the names in one directory, `sync_filesystem` all bytes
  and names, as syncfs does. A synced file whose name was not synced may vanish, and so does everything below an
  unsynced directory name.
- What was settled stays. Bytes that were neither rewritten nor cut off since their last sync never change.
- What was not settled may, one by one and in any order, have reached the disk or not: see `Damage`. Two names are
  independent of each other. Changes of one name keep their order, and a rename is atomic, as on every journaling
  file system: there is the old file or the new one, and the file that moved has exactly one of its two names.
"""

import errno
import itertools
import os
import random
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final, NoReturn, TypeAlias

from penstock.storage.files.real import Buffer, FileStat, Names

SECTOR: Final = 512


class Crashed(BaseException):
    """The machine lost power. Not an Exception, so that no handler in the code under test outlives it."""


class Damage(Enum):
    """What a crash leaves of that which was not synced."""

    LOSE_UNSYNCED = auto()
    """Nothing, neither bytes nor names."""
    TEAR_LAST_WRITE = auto()
    """Of each file the first writes and a part of the next one; of all changes of names the first ones."""
    ZERO_TAIL = auto()
    """All names, sizes and bytes, but bytes appended to a file are zero from a random place to its end."""
    REORDER_ENTRIES = auto()
    """Any changes of names, and any writes or 512-byte sectors of them, also a later one without an earlier one, or
    without the truncate before it; where nothing was written there are zeros."""


class MemoryFiles:
    """A file system in memory.

    `steps` counts the calls that change something or make it durable: open and lock when they create, pwritev,
    truncate, the three syncs, rename, unlink, make_directory and remove_directory. A call that is refused, as for a
    missing file or a full disk, is no step. `seed` decides how much of the step that crashes has happened. The time is
    `now_ms`, or else the number of steps. Descriptor numbers are never reused, so that one used after its close is
    always noticed. May be called from several threads.
    """

    def __init__(self, *, seed: int = 0, now_ms: Callable[[], int] | None = None) -> None:
        self.steps = 0
        self.capacity: int | None = None
        """Bytes that all files may have together; None for as many as they like."""
        self.can_sync_filesystem = True
        """False to be an operating system without syncfs."""
        self.boots = 1
        """How often the machine has been started."""
        self._seed = seed
        self._now_ms = now_ms
        self._root = _Directory()
        self._journal: dict[int, _NameChange] = {}
        self._descriptors: dict[int, _Descriptor] = {}
        self._numbers = itertools.count(_FIRST_FD)
        self._faults: list[_Fault] = []
        self._crash_step: int | None = None
        self._crashed = False
        self._mutex = threading.Lock()

    @property
    def open_descriptors(self) -> int:
        return len(self._descriptors)

    def fail(self, call: str | None, nth: int, error: OSError, *, after_bytes: int = 0) -> None:
        """Lets the nth call of this name from now on, 1 being the next, raise `error` and do nothing.

        Without a name the nth step fails. A failing pwritev may write its first `after_bytes` nevertheless. A failing
        sync of files loses their unsynced bytes: they can still be read, and no later sync makes them durable.
        """
        assert nth >= 1, "calls are counted from 1"
        self._faults.append(_Fault(call, nth, error, after_bytes))

    def short_write(self, nth: int, size: int) -> None:
        """Lets the nth pwritev from now on, 1 being the next, write and return no more than `size` bytes."""
        assert nth >= 1, "calls are counted from 1"
        self._faults.append(_Fault("pwritev", nth, None, size))

    def crash_at(self, step: int) -> None:
        """Loses power in the step after which `steps` would be `step`: it and every later call raise Crashed.

        That step has happened or not; of a write any part has.
        """
        assert step > self.steps, f"step {step} is in the past: {self.steps} steps were made"
        self._crash_step = step

    def after_crash(self, damage: Damage, rng: random.Random) -> "MemoryFiles":
        """Returns what the next start finds if the power is lost here; can be asked again, and at any time."""
        kept = _surviving_changes(self._journal, damage, rng)
        names: dict[_Directory, dict[str, _Node]] = {}
        for change in kept:
            for directory, name, node in change.entries:
                _set(names.setdefault(directory, directory.durable.copy()), name, node)

        def rebuild(old: _Directory, new: _Directory) -> None:
            new.modified_ms = old.modified_ms
            for name, node in names.get(old, old.durable).items():
                found: _Node
                if isinstance(node, _File):
                    data = _surviving_bytes(node, damage, rng)
                    found = _File(data, data.copy(), [], node.modified_ms)
                else:
                    found = _Directory(parent=new, name=name)
                    rebuild(node, found)
                new.entries[name] = new.durable[name] = found

        disk = MemoryFiles(seed=self._seed, now_ms=self._now_ms)
        disk.capacity, disk.can_sync_filesystem = self.capacity, self.can_sync_filesystem
        disk.boots = self.boots + 1
        rebuild(self._root, disk._root)
        return disk

    def copy(self) -> "MemoryFiles":
        """Returns an independent file system with the same files, synced and unsynced, but nothing open or planned."""
        twins: dict[_Node, _Node] = {}

        def twin_directory(old: _Directory) -> _Directory:
            if (known := twins.get(old)) is not None:
                assert isinstance(known, _Directory)
                return known
            new = twins[old] = _Directory(name=old.name, modified_ms=old.modified_ms, changes=old.changes.copy())
            new.parent = old.parent and twin_directory(old.parent)
            new.entries = {name: twin(node) for name, node in old.entries.items()}
            new.durable = {name: twin(node) for name, node in old.durable.items()}
            return new

        def twin(old: _Node) -> _Node:
            if isinstance(old, _Directory):
                return twin_directory(old)
            if old not in twins:
                twins[old] = _File(old.data.copy(), old.durable.copy(), old.unsynced.copy(), old.modified_ms)
            return twins[old]

        files = MemoryFiles(seed=self._seed, now_ms=self._now_ms)
        files.steps = self.steps
        files.capacity, files.can_sync_filesystem = self.capacity, self.can_sync_filesystem
        files.boots = self.boots
        files._root = twin_directory(self._root)
        for number, change in self._journal.items():
            entries = [
                (twin_directory(directory), name, node and twin(node)) for directory, name, node in change.entries
            ]
            files._journal[number] = _NameChange(number, entries, change.needs)
        return files

    def kill_process(self) -> None:
        """Closes every descriptor and with that every lock, as when a process dies and the machine does not."""
        for fd, descriptor in self._descriptors.items():
            if isinstance(descriptor.node, _File) and descriptor.node.locked_by == fd:
                descriptor.node.locked_by = None
        self._descriptors.clear()

    def flip_bit(self, path: str, position: int, bit: int) -> None:
        """Corrupts the file on the disk; its unsynced bytes become durable by that."""
        file = self._find(path)
        assert isinstance(file, _File), f"there is no file {path}"
        file.settle()
        file.data[position] ^= 1 << bit
        file.durable[position] ^= 1 << bit

    def open(self, path: str, *, write: bool = False, create: bool = False) -> int:
        return self._open("open", path, write=write, create=create)

    def close(self, fd: int) -> None:
        node = self._opened(fd).node
        del self._descriptors[fd]
        if isinstance(node, _File) and node.locked_by == fd:
            node.locked_by = None
        # An error of close leaves the descriptor closed on Linux, so it does here.
        self._enter("close")

    def pread(self, fd: int, size: int, position: int) -> bytes:
        self._enter("pread")
        return bytes(self._opened_file(fd).data[position : position + size])

    def pwritev(self, fd: int, buffers: Sequence[Buffer], position: int) -> int:
        file = self._opened_file(fd, or_else=errno.EBADF)
        assert position >= 0, "a negative position means the file's offset to the operating system"
        data = b"".join(buffers)
        if self.capacity is not None:
            data = data[: self._room(file, position, len(data))]
        with self._mutex:
            fault = self._step("pwritev")
            if fault is not None:
                data = data[: fault.part_of(len(data))]
            if data:
                self._change(file, (position, data))
            if fault is not None and fault.error is not None:
                raise fault.error
        return len(data)

    def size(self, fd: int) -> int:
        self._enter("size")
        return len(self._opened_file(fd).data)

    def truncate(self, fd: int, size: int) -> None:
        file = self._opened_file(fd, or_else=errno.EINVAL)
        if size < 0:
            _refuse(errno.EINVAL)
        self._perform("truncate", lambda: self._change(file, (size, None)))

    def sync(self, fd: int) -> None:
        file = self._opened_file(fd)
        self._perform("sync", file.settle, if_failed=file.unsynced.clear)

    def sync_directory(self, path: str) -> None:
        directory = self._directory(path)
        self._perform("sync_directory", lambda: self._settle_names(directory.changes.values()))

    def sync_filesystem(self, fd: int) -> bool:
        self._opened(fd)
        if not self.can_sync_filesystem:
            return False

        def settle() -> None:
            for file in self._all_files():
                file.settle()
            self._settle_names(list(self._journal))

        def lose() -> None:
            for file in self._all_files():
                file.unsynced.clear()

        self._perform("sync_filesystem", settle, if_failed=lose)
        return True

    def list(self, path: str) -> Names:
        self._enter("list")
        return sorted(self._directory(path).entries)

    def stat(self, path: str) -> FileStat | None:
        self._enter("stat")
        try:
            node = self._find(path)
        except NotADirectoryError:
            return None
        if node is None:
            return None
        if isinstance(node, _Directory):
            return FileStat(0, node.modified_ms, is_directory=True)
        return FileStat(len(node.data), node.modified_ms, is_directory=False)

    def make_directory(self, path: str) -> None:
        if self._find(path) is not None:
            _refuse(errno.EEXIST, path)
        parent, name = self._parent(path)
        node = _Directory(parent=parent, name=name, modified_ms=self._time())
        self._perform("make_directory", lambda: self._change_names((parent, name, node)))

    def remove_directory(self, path: str) -> None:
        directory = self._directory(path)
        if directory.parent is None:
            _refuse(errno.EBUSY, path)
        if directory.entries:
            _refuse(errno.ENOTEMPTY, path)
        parent, name = self._parent(path)
        self._perform(
            "remove_directory", lambda: self._change_names((parent, name, None), needs=directory.changes.values())
        )

    def rename(self, old: str, new: str) -> None:
        source, old_name = self._parent(old)
        target, new_name = self._parent(new)
        node, replaced = source.entries.get(old_name), target.entries.get(new_name)
        if node is None:
            _refuse(errno.ENOENT, old)
        if replaced is node:
            self._enter("rename")
            return
        if node in target.path():
            _refuse(errno.EINVAL, new)
        if isinstance(node, _File) and isinstance(replaced, _Directory):
            _refuse(errno.EISDIR, new)
        if isinstance(node, _Directory) and isinstance(replaced, _File):
            _refuse(errno.ENOTDIR, new)
        needs: list[int] = []
        if isinstance(replaced, _Directory):
            if replaced.entries:
                _refuse(errno.ENOTEMPTY, new)
            needs += replaced.changes.values()
        if source is not target:
            # What moved would be lost if it were durably gone from its old directory while the new one has no name.
            for directory in target.path():
                if directory.parent and (number := directory.parent.changes.get(directory.name)) is not None:
                    needs.append(number)

        def move() -> None:
            self._change_names((source, old_name, None), (target, new_name, node), needs=needs)
            if isinstance(node, _Directory):
                node.parent, node.name = target, new_name

        self._perform("rename", move)

    def unlink(self, path: str) -> None:
        parent, name = self._parent(path)
        node = parent.entries.get(name)
        if node is None:
            _refuse(errno.ENOENT, path)
        if isinstance(node, _Directory):
            _refuse(errno.EISDIR, path)
        self._perform("unlink", lambda: self._change_names((parent, name, None)))

    def lock(self, path: str) -> int:
        fd = self._open("lock", path, write=True, create=True)
        file = self._opened_file(fd)
        if file.locked_by is not None:
            del self._descriptors[fd]
            _refuse(errno.EAGAIN, path)
        file.locked_by = fd
        return fd

    def free_bytes(self, path: str) -> int:
        self._enter("free_bytes")
        if self._find(path) is None:
            _refuse(errno.ENOENT, path)
        return max(0, (_PLENTY if self.capacity is None else self.capacity) - self._used())

    def total_bytes(self, path: str) -> int:
        self._enter("total_bytes")
        if self._find(path) is None:
            _refuse(errno.ENOENT, path)
        return _PLENTY if self.capacity is None else self.capacity

    def boot_id(self) -> str:
        self._enter("boot_id")
        return f"boot {self.boots}"

    def is_cached(self, fd: int, position: int, size: int) -> bool:
        return True

    def read_cached(self, fd: int, size: int, position: int) -> Buffer | None:
        data = self.pread(fd, size, position) if self.is_cached(fd, position, size) else b""
        return data if len(data) == size else None

    def is_resident(self, fd: int, position: int, size: int) -> bool:
        # Asked only about what seems to have left the memory: here that is never a false alarm.
        return False

    def drop_cached(self, fd: int, position: int, size: int) -> None:
        self._enter("drop_cached")
        self._opened_file(fd)

    def start_writeback(self, fd: int, position: int, size: int) -> None:
        self._enter("start_writeback")
        self._opened_file(fd)

    def _enter(self, call: str) -> None:
        if self._crashed:
            raise Crashed
        fault = self._due(call, is_step=False)
        if fault is not None and fault.error is not None:
            raise fault.error

    def _perform(self, call: str, apply: Callable[[], None], *, if_failed: Callable[[], None] | None = None) -> None:
        with self._mutex:
            fault = self._step(call)
            if fault is None:
                apply()
                return
            if fault.crash is not None:
                if fault.crash.random() < 0.5:
                    apply()
            elif if_failed is not None:
                if_failed()
            assert fault.error is not None
            raise fault.error

    def _step(self, call: str) -> "_Fault | None":
        if self._crashed:
            raise Crashed
        self.steps += 1
        if self.steps == self._crash_step:
            self._crashed = True
            return _Fault(None, 0, Crashed(f"at step {self.steps}"), crash=random.Random(f"{self._seed} {self.steps}"))
        return self._due(call, is_step=True)

    def _due(self, call: str, *, is_step: bool) -> "_Fault | None":
        due = None
        for fault in self._faults:
            if fault.call == call or (fault.call is None and is_step):
                fault.countdown -= 1
                if fault.countdown == 0:
                    due = fault
        if due is not None:
            self._faults = [fault for fault in self._faults if fault.countdown > 0]
        return due

    def _open(self, call: str, path: str, *, write: bool, create: bool) -> int:
        node = self._find(path)
        if node is None and create:
            parent, name = self._parent(path)
            file = node = _File(modified_ms=self._time())
            self._perform(call, lambda: self._change_names((parent, name, file)))
        else:
            self._enter(call)
        if node is None:
            _refuse(errno.ENOENT, path)
        if isinstance(node, _Directory) and (write or create):
            _refuse(errno.EISDIR, path)
        fd = next(self._numbers)
        self._descriptors[fd] = _Descriptor(node, write)
        return fd

    def _opened(self, fd: int) -> "_Descriptor":
        if self._crashed:
            raise Crashed
        descriptor = self._descriptors.get(fd)
        if descriptor is None:
            _refuse(errno.EBADF)
        return descriptor

    def _opened_file(self, fd: int, *, or_else: int | None = None) -> "_File":
        """Returns the file; with `or_else` it must be open for writing, or else that is the error."""
        descriptor = self._opened(fd)
        if isinstance(descriptor.node, _Directory):
            _refuse(errno.EISDIR)
        if or_else is not None and not descriptor.write:
            _refuse(or_else)
        return descriptor.node

    def _find(self, path: str) -> "_Node | None":
        if self._crashed:
            raise Crashed
        node: _Node | None = self._root
        for part in path.split("/"):
            if part:
                if isinstance(node, _File):
                    _refuse(errno.ENOTDIR, path)
                node = node and node.entries.get(part)
        return node

    def _directory(self, path: str) -> "_Directory":
        node = self._find(path)
        if node is None:
            _refuse(errno.ENOENT, path)
        if isinstance(node, _File):
            _refuse(errno.ENOTDIR, path)
        return node

    def _parent(self, path: str) -> "tuple[_Directory, str]":
        parent, _, name = path.rpartition("/")
        return self._directory(parent), name

    def _all_files(self) -> "Iterable[_File]":
        """Every file that has a name or is open."""
        nodes = {descriptor.node: None for descriptor in list(self._descriptors.values())}
        directories = [self._root]
        for directory in directories:
            for node in directory.entries.values():
                nodes[node] = None
                if isinstance(node, _Directory):
                    directories.append(node)
        return [node for node in nodes if isinstance(node, _File)]

    def _time(self) -> int:
        return self.steps if self._now_ms is None else self._now_ms()

    def _change(self, file: "_File", change: "_ByteChange") -> None:
        _apply(file.data, change)
        file.unsynced.append(change)
        file.modified_ms = self._time()

    def _used(self) -> int:
        return sum(len(file.data) for file in self._all_files())

    def _room(self, file: "_File", position: int, size: int) -> int:
        """How many bytes of a write there is room for; none at all is an error."""
        assert self.capacity is not None
        end = max(len(file.data), len(file.data) + self.capacity - self._used())
        if size > 0 and position >= end:
            _refuse(errno.ENOSPC)
        return min(size, end - position)

    def _change_names(self, *entries: "_Entry", needs: Iterable[int] = ()) -> None:
        """Changes names, all at once. `needs` are changes that must be durable before this one can be."""
        number = self.steps
        required = {change for change in needs if change in self._journal}
        for directory, name, node in entries:
            if (earlier := directory.changes.get(name)) is not None:
                required.add(earlier)
            directory.changes[name] = number
            directory.modified_ms = self._time()
            _set(directory.entries, name, node)
        self._journal[number] = _NameChange(number, entries, frozenset(required))

    def _settle_names(self, numbers: Iterable[int]) -> None:
        for number in sorted(_with_needs(self._journal, numbers)):
            for directory, name, node in self._journal.pop(number).entries:
                _set(directory.durable, name, node)
                if directory.changes[name] == number:
                    del directory.changes[name]


_FIRST_FD: Final = 1_000_000
"""Far from any number that the operating system gives, so that it refuses ours."""
_PLENTY: Final = 1 << 40

_ByteChange: TypeAlias = tuple[int, bytes | None]
"""Position and bytes of a write, or the size that a truncate cut or extended to and None."""


@dataclass(slots=True, eq=False)
class _File:
    data: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    unsynced: list[_ByteChange] = field(default_factory=list)
    """What was done to `data` and not yet to `durable`."""
    modified_ms: int = 0
    locked_by: int | None = None

    def settle(self) -> None:
        for change in self.unsynced:
            _apply(self.durable, change)
        self.unsynced.clear()


@dataclass(slots=True, eq=False)
class _Directory:
    parent: "_Directory | None" = None
    name: str = ""
    entries: "dict[str, _Node]" = field(default_factory=dict)
    durable: "dict[str, _Node]" = field(default_factory=dict)
    changes: dict[str, int] = field(default_factory=dict)
    """The last change of each name that is not durable, by its number in the journal."""
    modified_ms: int = 0

    def path(self) -> "list[_Directory]":
        """This directory and those above it."""
        return [self, *(self.parent.path() if self.parent else [])]


_Node: TypeAlias = _File | _Directory
_Entry: TypeAlias = tuple[_Directory, str, _Node | None]
"""What a name in a directory stands for from now on, None for nothing."""


@dataclass(slots=True, frozen=True)
class _NameChange:
    """Names that change together, after the changes that this one `needs`, which come before it in the journal."""

    number: int
    entries: Sequence[_Entry]
    needs: frozenset[int]


@dataclass(slots=True, frozen=True)
class _Descriptor:
    node: _Node
    write: bool


@dataclass(slots=True)
class _Fault:
    call: str | None
    countdown: int
    error: BaseException | None
    after_bytes: int = 0
    crash: random.Random | None = None

    def part_of(self, size: int) -> int:
        """How much of a write of this size happens."""
        return self.crash.randint(0, size) if self.crash is not None else min(size, self.after_bytes)


def _refuse(number: int, path: str | None = None) -> NoReturn:
    raise OSError(number, os.strerror(number), path)


def _set(names: dict[str, _Node], name: str, node: _Node | None) -> None:
    if node is None:
        names.pop(name, None)
    else:
        names[name] = node


def _apply(data: bytearray, change: _ByteChange) -> None:
    position, piece = change
    if position > len(data):
        data.extend(bytes(position - len(data)))
    if piece is None:
        del data[position:]
    else:
        data[position : position + len(piece)] = piece


def _with_needs(journal: dict[int, _NameChange], numbers: Iterable[int]) -> set[int]:
    found: set[int] = set()
    waiting = list(numbers)
    while waiting:
        number = waiting.pop()
        if number in journal and number not in found:
            found.add(number)
            waiting.extend(journal[number].needs)
    return found


def _surviving_changes(journal: dict[int, _NameChange], damage: Damage, rng: random.Random) -> list[_NameChange]:
    changes = list(journal.values())
    match damage:
        case Damage.LOSE_UNSYNCED:
            return []
        case Damage.TEAR_LAST_WRITE:
            return changes[: rng.randint(0, len(changes))]
        case Damage.ZERO_TAIL:
            return changes
        case Damage.REORDER_ENTRIES:
            share = rng.random()
            chosen = [number for number in journal if rng.random() < share]
            return [journal[number] for number in sorted(_with_needs(journal, chosen))]


def _surviving_bytes(file: _File, damage: Damage, rng: random.Random) -> bytearray:
    data = file.durable.copy()
    changes = file.unsynced
    if not changes:
        return data
    match damage:
        case Damage.LOSE_UNSYNCED:
            pass
        case Damage.TEAR_LAST_WRITE:
            whole = rng.randint(0, len(changes))
            for change in changes[:whole]:
                _apply(data, change)
            for position, piece in changes[whole : whole + 1]:
                if piece is not None and (part := rng.randrange(len(piece))):
                    _apply(data, (position, piece[:part]))
        case Damage.ZERO_TAIL:
            settled = min([len(data), *(size for size, piece in changes if piece is None)])
            for change in changes:
                _apply(data, change)
            start = rng.randint(settled, len(data))
            if rng.random() < 0.5:
                start = max(settled, start - start % SECTOR)
            data[start:] = bytes(len(data) - start)
        case Damage.REORDER_ENTRIES:
            share = rng.random()
            for change in changes if rng.random() < 0.5 else _in_sectors(changes):
                if rng.random() < share:
                    _apply(data, change)
    return data


def _in_sectors(changes: Iterable[_ByteChange]) -> Iterable[_ByteChange]:
    for position, piece in changes:
        if piece is None:
            yield position, None
            continue
        start = 0
        while start < len(piece):
            end = min(len(piece), start + SECTOR - (position + start) % SECTOR)
            yield position + start, piece[start:end]
            start = end
