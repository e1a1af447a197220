"""Descriptors are shared, kept up to the limit, and never closed under somebody who uses them."""

import random
from pathlib import Path

import pytest

from penstock.storage.descriptors import Descriptors, Pinned
from penstock.storage.files import RealFiles, write_all
from penstock.storage.memory_files import MemoryFiles


def disk_of(*names: str) -> MemoryFiles:
    files = MemoryFiles()
    for name in names:
        write(files, name, name.encode())
    return files


def write(files: MemoryFiles | RealFiles, path: str, data: bytes) -> None:
    fd = files.open(path, write=True, create=True)
    write_all(files, fd, [data], 0)
    files.close(fd)


def is_open(files: MemoryFiles, fd: int) -> bool:
    try:
        files.size(fd)
    except OSError:
        return False
    return True


def test_pins_of_one_path_share_a_descriptor() -> None:
    files = disk_of("a")
    descriptors = Descriptors(files, limit=10)
    with descriptors.pin("a") as first, descriptors.pin("a") as second:
        assert first.fd == second.fd
        assert files.open_descriptors == descriptors.open_count == 1
        fd = first.fd
    with descriptors.pin("a") as third:
        assert third.fd == fd, "a released descriptor stays open"


def test_reading_and_writing_have_a_descriptor_each() -> None:
    files = disk_of("a")
    descriptors = Descriptors(files, limit=10)
    with descriptors.pin("a") as reading, descriptors.pin("a", write=True) as writing:
        assert reading.fd != writing.fd
        files.pwritev(writing.fd, [b"A"], 0)
        assert files.pread(reading.fd, 1, 0) == b"A"
        with pytest.raises(OSError, match="descriptor"):
            files.pwritev(reading.fd, [b"B"], 0)


def test_a_missing_file_is_the_callers_error_and_leaves_nothing_behind() -> None:
    files = disk_of()
    descriptors = Descriptors(files, limit=1)
    with pytest.raises(FileNotFoundError):
        descriptors.pin("a")
    assert descriptors.open_count == 0
    write(files, "a", b"now")
    with descriptors.pin("a") as pinned:
        assert files.pread(pinned.fd, 10, 0) == b"now"


def test_the_least_recently_used_descriptor_is_closed() -> None:
    files = disk_of("a", "b", "c")
    descriptors = Descriptors(files, limit=2)
    numbers = {}
    for name in ("a", "b", "a", "c"):
        with descriptors.pin(name) as pinned:
            numbers[name] = pinned.fd
    assert {name for name, fd in numbers.items() if is_open(files, fd)} == {"a", "c"}


def test_pinned_descriptors_go_over_the_limit_and_releases_come_back_to_it() -> None:
    files = disk_of("a", "b", "c", "d")
    descriptors = Descriptors(files, limit=2)
    pins = [descriptors.pin(name) for name in ("a", "b", "c", "d")]
    assert descriptors.open_count == 4
    assert all(is_open(files, pin.fd) for pin in pins)
    for pin, expected in zip(pins, (3, 2, 2, 2), strict=True):
        pin.release()
        assert files.open_descriptors == descriptors.open_count == expected


def test_only_the_last_release_makes_a_descriptor_idle() -> None:
    files = disk_of("a", "b")
    descriptors = Descriptors(files, limit=1)
    first, second = descriptors.pin("a"), descriptors.pin("a")
    fd = first.fd
    first.release()
    descriptors.pin("b").release()
    assert is_open(files, fd)
    assert files.pread(second.fd, 1, 0) == b"a"
    second.release()
    descriptors.pin("b").release()
    assert not is_open(files, fd)


def test_forget_closes_an_idle_descriptor_and_opens_anew() -> None:
    files = disk_of("a")
    descriptors = Descriptors(files, limit=10)
    descriptors.pin("a").release()
    descriptors.pin("a", write=True).release()
    descriptors.forget("a")
    assert files.open_descriptors == descriptors.open_count == 0
    files.unlink("a")
    write(files, "a", b"new")
    with descriptors.pin("a") as pinned:
        assert files.pread(pinned.fd, 10, 0) == b"new"
    descriptors.forget("unknown")
    assert descriptors.open_count == 1


def test_a_forgotten_descriptor_closes_with_its_last_pin() -> None:
    files = disk_of("a")
    descriptors = Descriptors(files, limit=10)
    old, also_old = descriptors.pin("a"), descriptors.pin("a")
    descriptors.forget("a")
    files.unlink("a")
    write(files, "a", b"new")
    new = descriptors.pin("a")
    assert files.pread(old.fd, 10, 0) == b"a"
    assert files.pread(new.fd, 10, 0) == b"new"
    old.release()
    assert files.pread(also_old.fd, 10, 0) == b"a"
    also_old.release()
    assert files.open_descriptors == descriptors.open_count == 1
    new.release()


def test_close_leaves_open_what_is_pinned_until_its_release() -> None:
    files = disk_of("a", "b")
    descriptors = Descriptors(files, limit=10)
    descriptors.pin("a").release()
    pinned = descriptors.pin("b")
    descriptors.close()
    assert files.open_descriptors == 1
    assert files.pread(pinned.fd, 1, 0) == b"b"
    pinned.release()
    assert files.open_descriptors == descriptors.open_count == 0
    with pytest.raises(AssertionError, match="after close"):
        descriptors.pin("a")


def test_a_second_release_is_a_bug() -> None:
    descriptors = Descriptors(disk_of("a"), limit=10)
    pinned = descriptors.pin("a")
    pinned.release()
    with pytest.raises(AssertionError, match="released twice"):
        pinned.release()


def test_a_released_pin_no_longer_knows_the_number() -> None:
    descriptors = Descriptors(disk_of("a"), limit=10)
    pinned = descriptors.pin("a")
    pinned.release()
    assert pinned.fd == -1


@pytest.mark.parametrize("seed", range(50))
def test_every_pin_reads_its_own_file_in_any_order_of_calls(seed: int) -> None:
    rng = random.Random(seed)
    names = [f"file {number}" for number in range(8)]
    files = disk_of(*names)
    descriptors = Descriptors(files, limit=3)
    pins: list[tuple[Pinned, bytes]] = []
    content = {name: name.encode() for name in names}
    for number in range(300):
        name = rng.choice(names)
        action = rng.random()
        if action < 0.5:
            pins.append((descriptors.pin(name, write=rng.random() < 0.3), content[name]))
        elif action < 0.9 and pins:
            pins.pop(rng.randrange(len(pins)))[0].release()
        elif action >= 0.9:
            descriptors.forget(name)
            files.unlink(name)
            content[name] = f"{name}, version {number}".encode()
            write(files, name, content[name])
        for pinned, expected in pins:
            assert files.pread(pinned.fd, 100, 0) == expected
        assert descriptors.open_count == files.open_descriptors
        assert descriptors.open_count <= max(3, len({pinned.fd for pinned, _ in pins}))
    for pinned, _ in pins:
        pinned.release()
    assert descriptors.open_count <= 3
    descriptors.close()
    assert files.open_descriptors == 0


def test_a_real_pinned_descriptor_keeps_its_number_while_hundreds_come_and_go(tmp_path: Path) -> None:
    files = RealFiles()
    paths = [str(tmp_path / f"{number}") for number in range(300)]
    for path in paths:
        write(files, path, path.encode())
    descriptors = Descriptors(files, limit=5)
    held = descriptors.pin(paths[0])
    number = held.fd
    seen = set()
    for path in paths[1:]:
        with descriptors.pin(path) as pinned:
            assert pinned.fd != number
            assert files.pread(pinned.fd, 1_000, 0) == path.encode()
            seen.add(pinned.fd)
        assert descriptors.open_count <= 5
    assert len(seen) < 20, "the operating system reuses numbers, so this would notice a closed pin"
    assert held.fd == number
    assert files.pread(number, 1_000, 0) == paths[0].encode()
    held.release()
    descriptors.close()


def test_a_real_pinned_file_is_read_after_it_was_unlinked_and_replaced(tmp_path: Path) -> None:
    files = RealFiles()
    path = str(tmp_path / "a")
    write(files, path, b"old")
    descriptors = Descriptors(files, limit=5)
    with descriptors.pin(path) as old:
        descriptors.forget(path)
        files.unlink(path)
        write(files, path, b"new")
        with descriptors.pin(path) as new:
            assert files.pread(new.fd, 10, 0) == b"new"
            assert files.pread(old.fd, 10, 0) == b"old"
    descriptors.close()
    assert descriptors.open_count == 0
