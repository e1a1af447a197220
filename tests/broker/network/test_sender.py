"""Bytes and ranges of real files to a real socket, whose other end the test reads when it likes."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.broker.network.sender import SENDFILE_FROM_BYTES, Sender, release
from penstock.protocol.batch import split
from penstock.storage.data_directory import DataDirectory
from penstock.storage.files import Files, RealFiles
from penstock.storage.files.memory import MemoryFiles
from penstock.storage.log.file_range import FileRange
from penstock.storage.log.log import Log
from tests.broker.harness import NOW_MS, batch, in_loop, until

LARGE = 3 * 1024 * 1024
SMALL = 1000


class Protocol(asyncio.Protocol):
    """Passes on what the transport says."""

    sender: Sender

    def __init__(self) -> None:
        self.is_lost = False

    def pause_writing(self) -> None:
        self.sender.pause()

    def resume_writing(self) -> None:
        self.sender.resume()

    def connection_lost(self, error: Exception | None) -> None:
        self.is_lost = True
        self.sender.close()


class Setting:
    def __init__(self, folder: Path, files: Files | None = None) -> None:
        self.directory = DataDirectory(str(folder / "logs"), files or RealFiles())
        self.broken: list[str] = []
        self.moves = 0

    def _moved(self) -> None:
        self.moves += 1

    def log(self, size: int) -> tuple[Log, bytes]:
        """A log of one batch, and its bytes."""
        log = self.directory.log("orders", len(self.directory.reports))
        log.append([split(batch(os.urandom(size)))[0]], leader_epoch=0, now_ms=NOW_MS)
        with self.range(log) as found:
            return log, found.read()

    def range(self, log: Log) -> FileRange:
        found = log.read(0, max_bytes=1)
        assert found is not None
        return found

    @property
    def pinned(self) -> int:
        return sum(file.readers for file in self.directory._descriptors.open_files)

    def cut(self, log: Log, size: int) -> None:
        """As nobody should: cut the file behind the log's back."""
        os.truncate(log.segments[0].path, size)

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[tuple[Sender, socket.socket]]:
        loop = asyncio.get_running_loop()
        near, far = socket.socketpair()
        far.setblocking(False)
        near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
        transport, protocol = await loop.connect_accepted_socket(Protocol, near)
        protocol.sender = sender = Sender(loop, transport, self.broken.append, self._moved)
        try:
            yield sender, far
        finally:
            transport.abort()
            await until(lambda: protocol.is_lost)
            far.close()
            self.directory.close()


async def receive(sock: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        received += await asyncio.get_running_loop().sock_recv(sock, 1 << 20)
    return bytes(received)


@in_loop
async def test_bytes_and_ranges_arrive_in_the_order_in_which_they_were_sent(tmp_path: Path) -> None:
    setting = Setting(tmp_path)
    small, small_bytes = setting.log(SMALL)
    large, large_bytes = setting.log(LARGE)
    async with setting.connected() as (sender, far):
        sender.send([b"one", setting.range(small), b"two", setting.range(large), b"three"])
        sender.send([setting.range(large), memoryview(b"four"), setting.range(small)])
        expected = b"one" + small_bytes + b"two" + large_bytes + b"three" + large_bytes + b"four" + small_bytes
        assert await receive(far, len(expected)) == expected
        await until(lambda: sender.is_idle)
        assert (sender.queued_bytes, setting.pinned, setting.broken) == (0, 0, [])


@in_loop
async def test_large_ranges_go_by_sendfile_and_small_ones_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[tuple[int, int]] = []
    real = os.sendfile

    def spy(out: int, source: int, position: int, count: int) -> int:
        sent.append((out, source))
        return real(out, source, position, count)

    monkeypatch.setattr(os, "sendfile", spy)
    setting = Setting(tmp_path)
    below, below_bytes = setting.log(SENDFILE_FROM_BYTES - 200)
    above, above_bytes = setting.log(SENDFILE_FROM_BYTES)
    assert len(below_bytes) < SENDFILE_FROM_BYTES <= len(above_bytes)
    async with setting.connected() as (sender, far):
        sender.send([setting.range(below)])
        assert await receive(far, len(below_bytes)) == below_bytes
        assert sent == []
        found = setting.range(above)
        file = found.fd
        sender.send([found])
        assert await receive(far, len(above_bytes)) == above_bytes
        # From the log's own descriptor, whose position no call uses, to a duplicate of the socket's.
        assert {source for _, source in sent} == {file}
        assert os.lseek(file, 0, os.SEEK_CUR) == 0


@in_loop
async def test_files_that_the_operating_system_cannot_send_are_read() -> None:
    setting = Setting(Path("/data"), MemoryFiles())
    small, small_bytes = setting.log(SMALL)
    large, large_bytes = setting.log(LARGE)
    async with setting.connected() as (sender, far):
        sender.send([b"one", setting.range(large), setting.range(small)])
        sender.send([setting.range(large), b"two"])
        expected = b"one" + large_bytes + small_bytes + large_bytes + b"two"
        assert await receive(far, len(expected)) == expected
        await until(lambda: sender.is_idle)
        assert (sender.queued_bytes, setting.pinned, setting.broken) == (0, 0, [])


@in_loop
async def test_a_reader_that_comes_late_gets_everything(tmp_path: Path) -> None:
    setting = Setting(tmp_path)
    large, large_bytes = setting.log(LARGE)
    async with setting.connected() as (sender, far):
        for _ in range(3):
            sender.send([b"x" * 500_000, setting.range(large)])
        assert not sender.is_idle
        assert sender.queued_bytes > 2 * LARGE
        expected = (b"x" * 500_000 + large_bytes) * 3
        assert await receive(far, len(expected)) == expected
        await until(lambda: sender.is_idle)
        assert (sender.queued_bytes, setting.pinned) == (0, 0)


@in_loop
async def test_the_transport_holds_little_however_much_is_queued(tmp_path: Path) -> None:
    setting = Setting(tmp_path)
    async with setting.connected() as (sender, _):
        for _ in range(100):
            sender.send([b"x" * 100_000])
        assert sender._transport.get_write_buffer_size() <= 400_000
        assert sender.queued_bytes >= 9_000_000


@in_loop
async def test_progress_is_noted_when_the_reader_takes_something(tmp_path: Path) -> None:
    setting = Setting(tmp_path)
    large, large_bytes = setting.log(LARGE)
    async with setting.connected() as (sender, far):
        sender.send([setting.range(large)])
        sender.progressed_at = 0.0
        assert await receive(far, len(large_bytes)) == large_bytes
        await until(lambda: sender.is_idle)
        assert sender.progressed_at > 0


@in_loop
async def test_a_large_range_whose_file_ends_early_breaks_the_connection(tmp_path: Path) -> None:
    setting = Setting(tmp_path)
    large, large_bytes = setting.log(LARGE)
    another, _ = setting.log(LARGE)
    async with setting.connected() as (sender, far):
        found = setting.range(large)
        setting.cut(large, 100_000)
        sender.send([b"promise", found, setting.range(another), b"more"])
        received = b""
        while not setting.broken:
            received += await receive(far, 1)
        assert "ended before the length that was promised" in setting.broken[0]
        received += far.recv(1 << 20) if len(received) < 100_007 else b""
        assert received == b"promise" + large_bytes[:100_000]
        with pytest.raises(BlockingIOError):
            far.recv(1)
        assert setting.pinned == 0


@in_loop
async def test_a_small_range_whose_file_ends_early_breaks_the_connection_too(tmp_path: Path) -> None:
    setting = Setting(tmp_path)
    small, _ = setting.log(SMALL)
    async with setting.connected() as (sender, _):
        found, another = setting.range(small), setting.range(small)
        setting.cut(small, 100)
        sender.send([b"promise", found, b"more", another])
        assert len(setting.broken) == 1
        assert "was cut to 100 bytes" in setting.broken[0]
    assert setting.pinned == 0


@in_loop
async def test_a_reader_that_vanishes_in_the_middle_of_a_range_breaks_the_connection(tmp_path: Path) -> None:
    setting = Setting(tmp_path)
    large, _ = setting.log(LARGE)
    async with setting.connected() as (sender, far):
        sender.send([setting.range(large)])
        far.close()
        await until(lambda: setting.broken or not setting.pinned)
    assert setting.pinned == 0


@in_loop
async def test_a_close_lets_go_of_all_files_and_of_the_duplicate(tmp_path: Path) -> None:
    setting = Setting(tmp_path)
    large, _ = setting.log(LARGE)
    small, _ = setting.log(SMALL)
    before = len(os.listdir("/dev/fd"))
    async with setting.connected() as (sender, _):
        sender.send([setting.range(large), setting.range(small), setting.range(large)])
        assert setting.pinned == 3
        sender.close()
        assert (setting.pinned, sender.queued_bytes) == (0, 0)
        sender.close()
    assert len(os.listdir("/dev/fd")) <= before


def test_release_lets_go_of_ranges_among_other_chunks(tmp_path: Path) -> None:
    setting = Setting(tmp_path)
    small, _ = setting.log(SMALL)
    chunks: list[Any] = [b"a", setting.range(small), memoryview(b"b"), setting.range(small)]
    assert setting.pinned == 2
    release(chunks)
    assert setting.pinned == 0
    setting.directory.close()
