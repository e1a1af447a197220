"""Files stay open up to a limit, and are never closed while they are in use."""

import errno
import random
import resource
from pathlib import Path

import pytest

from penstock.storage.files import RealFiles, write_all
from penstock.storage.files import descriptors as module
from penstock.storage.files.descriptors import Descriptors, KeptFile, default_limit
from penstock.storage.files.memory import MemoryFiles


def disk_of(*names: str) -> MemoryFiles:
    files = MemoryFiles()
    for name in names:
        write(files, name, name.encode())
    return files


def write(files: MemoryFiles | RealFiles, path: str, data: bytes) -> None:
    fd = files.open(path, write=True, create=True)
    write_all(files, fd, [data], 0)
    files.close(fd)


def kept(files: MemoryFiles, *names: str, limit: int = 10) -> tuple[Descriptors, list[KeptFile]]:
    descriptors = Descriptors(files, limit=limit)
    return descriptors, [KeptFile(descriptors, name) for name in names]


def use(file: KeptFile) -> None:
    with file.hold():
        pass


def test_a_file_is_opened_when_it_is_first_used_and_stays_open() -> None:
    files = disk_of("a")
    descriptors, (a,) = kept(files, "a")
    assert (a.fd, descriptors.open_count) == (-1, 0)
    with a.hold() as first, a.hold() as second:
        assert first is second is a
        fd = a.fd
        assert files.open_descriptors == descriptors.open_count == 1
    with a.hold():
        assert a.fd == fd
    assert descriptors.open_files == (a,)


def test_one_descriptor_reads_and_writes() -> None:
    files = disk_of("a")
    _, (a,) = kept(files, "a")
    fd = a.open()
    files.pwritev(fd, [b"A"], 0)
    assert files.pread(fd, 1, 0) == b"A"


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM, errno.EROFS])
def test_a_file_that_may_not_be_written_can_be_read(number: int) -> None:
    files = disk_of("a")
    _, (a,) = kept(files, "a")
    files.fail("open", 1, OSError(number, "read only"))
    with a.hold():
        assert files.pread(a.fd, 1, 0) == b"a"
        with pytest.raises(OSError, match="descriptor"):
            files.pwritev(a.fd, [b"B"], 0)


def test_a_missing_file_is_the_callers_error_and_leaves_nothing_behind() -> None:
    files = disk_of()
    descriptors, (a,) = kept(files, "a", limit=1)
    for use_it in (a.hold, a.hold_for_sync, a.open):
        with pytest.raises(FileNotFoundError):
            use_it()
    assert (descriptors.open_count, a.fd, a.readers, a.writers) == (0, -1, 0, 0)
    write(files, "a", b"now")
    with a.hold():
        assert files.pread(a.fd, 10, 0) == b"now"


def test_of_two_files_the_one_that_was_used_again_stays_open() -> None:
    descriptors, (a, b, c) = kept(disk_of("a", "b", "c"), "a", "b", "c", limit=2)
    for file in (a, b, a, c):
        use(file)
    assert set(descriptors.open_files) == {a, c}
    assert b.fd == -1


def test_files_in_use_go_over_the_limit_and_releases_come_back_to_it() -> None:
    files = disk_of("a", "b", "c", "d")
    descriptors, all_files = kept(files, "a", "b", "c", "d", limit=2)
    for file in all_files:
        file.hold()
    assert descriptors.open_count == 4
    for file, expected in zip(all_files, (3, 2, 2, 2), strict=True):
        file.release()
        assert files.open_descriptors == descriptors.open_count == expected


def test_a_file_that_waits_for_its_sync_stays_open() -> None:
    files = disk_of("a", "b", "c")
    descriptors, (a, b, c) = kept(files, "a", "b", "c", limit=1)
    a.hold_for_sync()
    fd = a.fd
    for file in (b, c):
        use(file)
    assert a.fd == fd
    a.synced()
    assert descriptors.open_count == 1
    use(b)
    assert a.fd == -1


def test_the_limit_holds_again_after_many_files_were_in_use_at_once() -> None:
    names = [f"{number}" for number in range(200)]
    files = disk_of(*names)
    descriptors, all_files = kept(files, *names, limit=20)
    for file in all_files:
        file.hold_for_sync()
    assert descriptors.open_count == 200
    for file in all_files:
        file.synced()
    assert descriptors.open_count == files.open_descriptors == 20


def test_a_look_for_a_file_to_close_passes_over_few_that_are_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LOOKS", 3)
    names = [f"{number}" for number in range(9)]
    descriptors, all_files = kept(disk_of(*names), *names, limit=5)
    for file in all_files[:4]:
        file.hold()
    use(all_files[4])
    all_files[5].hold()
    assert descriptors.open_count == 6, "the only file to close comes after four that are in use"
    all_files[6].hold()
    assert (descriptors.open_count, all_files[4].fd) == (6, -1)


def test_only_the_last_release_makes_a_file_idle() -> None:
    files = disk_of("a", "b")
    _, (a, b) = kept(files, "a", "b", limit=1)
    a.hold()
    a.hold()
    a.release()
    use(b)
    assert files.pread(a.fd, 1, 0) == b"a"
    a.release()
    use(b)
    assert a.fd == -1


def test_a_dropped_file_is_closed_at_once_or_with_its_last_use() -> None:
    files = disk_of("a")
    descriptors, (old, new) = kept(files, "a", "a")
    use(new)
    new.drop()
    assert files.open_descriptors == 0
    old.hold()
    old.hold_for_sync()
    old.drop()
    files.unlink("a")
    write(files, "a", b"new")
    with new.hold():
        assert files.pread(old.fd, 10, 0) == b"a"
        assert files.pread(new.fd, 10, 0) == b"new"
    old.release()
    assert files.pread(old.fd, 10, 0) == b"a"
    old.synced()
    assert (old.fd, files.open_descriptors, descriptors.open_count) == (-1, 1, 1)
    old.drop()
    assert new.fd >= 0, "a file that is opened again is kept as before"


def test_close_leaves_open_what_is_in_use_until_its_release() -> None:
    files = disk_of("a", "b")
    descriptors, (a, b) = kept(files, "a", "b")
    use(a)
    b.hold()
    descriptors.close_all()
    assert (files.open_descriptors, a.fd) == (1, -1)
    assert files.pread(b.fd, 1, 0) == b"b"
    b.release()
    assert files.open_descriptors == descriptors.open_count == 0
    with pytest.raises(AssertionError, match="after close"):
        a.hold()


def test_a_second_release_is_a_bug() -> None:
    _, (a,) = kept(disk_of("a"), "a")
    use(a)
    with pytest.raises(AssertionError, match="released twice"):
        a.release()
    with pytest.raises(AssertionError, match="synced twice"):
        a.synced()


@pytest.mark.parametrize("seed", range(50))
def test_every_use_reads_its_own_file_in_any_order_of_calls(seed: int) -> None:
    rng = random.Random(seed)
    names = [f"file {number}" for number in range(8)]
    files = disk_of(*names)
    descriptors = Descriptors(files, limit=3)
    current = {name: (KeptFile(descriptors, name), name.encode()) for name in names}
    uses: list[tuple[KeptFile, bytes, bool]] = []
    for number in range(300):
        name = rng.choice(names)
        action = rng.random()
        if action < 0.5:
            file, content = current[name]
            is_sync = rng.random() < 0.3
            file.hold_for_sync() if is_sync else file.hold()
            uses.append((file, content, is_sync))
        elif action < 0.9 and uses:
            file, _, is_sync = uses.pop(rng.randrange(len(uses)))
            file.synced() if is_sync else file.release()
        elif action >= 0.9:
            current[name][0].drop()
            files.unlink(name)
            content = f"{name}, version {number}".encode()
            write(files, name, content)
            current[name] = KeptFile(descriptors, name), content
        for file, content, _ in uses:
            assert files.pread(file.fd, 100, 0) == content
        assert descriptors.open_count == files.open_descriptors
        assert descriptors.open_count <= max(3, len({file.fd for file, _, _ in uses}))
    for file, _, is_sync in uses:
        file.synced() if is_sync else file.release()
    assert descriptors.open_count <= 3
    descriptors.close_all()
    assert files.open_descriptors == 0


def test_a_real_file_in_use_keeps_its_number_while_hundreds_come_and_go(tmp_path: Path) -> None:
    files = RealFiles()
    paths = [str(tmp_path / f"{number}") for number in range(300)]
    for path in paths:
        write(files, path, path.encode())
    descriptors = Descriptors(files, limit=5)
    held = KeptFile(descriptors, paths[0]).hold()
    number = held.fd
    seen = set()
    for path in paths[1:]:
        with KeptFile(descriptors, path).hold() as file:
            assert file.fd != number
            assert files.pread(file.fd, 1_000, 0) == path.encode()
            seen.add(file.fd)
        assert descriptors.open_count <= 5
    assert len(seen) < 20, "the operating system reuses numbers, so this would notice a closed file"
    assert held.fd == number
    assert files.pread(number, 1_000, 0) == paths[0].encode()
    held.release()
    descriptors.close_all()
    assert descriptors.open_count == 0


@pytest.mark.parametrize(("allowed", "limit"), [(256, 128), (1, 1), (1_000_000, 10_000), (-1, 10_000)])
def test_half_of_the_files_that_a_process_may_open_are_for_storage(
    monkeypatch: pytest.MonkeyPatch, allowed: int, limit: int
) -> None:
    assert resource.RLIM_INFINITY == -1
    monkeypatch.setattr(resource, "getrlimit", lambda _: (allowed, allowed))
    assert default_limit() == limit
