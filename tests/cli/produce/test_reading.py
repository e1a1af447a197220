"""Chunks of input from a thread."""

import asyncio
import io
import os
import sys
import threading
from typing import IO

import pytest

from penstock.cli.produce import reading
from penstock.cli.produce.reading import ChunkReader, unbuffered
from tests.waiting import in_loop


async def chunks_of(*streams: IO[bytes]) -> list[bytes]:
    reader, chunks = ChunkReader(streams), []
    while (chunk := await reader.next()) is not None:
        chunks.append(chunk)
    assert await reader.next() is None, "the end stays the end"
    return chunks


@in_loop
async def test_streams_come_one_after_the_other_each_with_its_end() -> None:
    assert await chunks_of(io.BytesIO(b"one"), io.BytesIO(b""), io.BytesIO(b"two")) == [b"one", b"", b"", b"two", b""]


@in_loop
async def test_more_than_is_read_ahead_comes_in_order() -> None:
    data = os.urandom(1000) * 10_000
    chunks = await chunks_of(io.BytesIO(data))
    assert len(chunks) > reading.AHEAD
    assert b"".join(chunks) == data


@in_loop
async def test_what_a_pipe_has_comes_at_once_and_what_it_has_not_is_not_waited_for() -> None:
    read_end, write_end = os.pipe()
    with open(read_end, "rb", buffering=0) as stream:
        reader = ChunkReader([stream])
        os.write(write_end, b"a line\n")
        assert await reader.next() == b"a line\n"
        with pytest.raises(TimeoutError):
            await reader.next(within=0.001)
        os.write(write_end, b"another\n")
        assert await reader.next() == b"another\n"
        os.close(write_end)
        assert await reader.next() == b""
        assert await reader.next() is None


class Broken(io.RawIOBase):
    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        raise OSError(5, "the disk is broken")


@in_loop
async def test_an_error_of_the_disk_is_told() -> None:
    reader = ChunkReader([Broken()])  # type: ignore[list-item]
    with pytest.raises(OSError, match="the disk is broken"):
        await reader.next()


def test_a_reader_that_is_left_in_the_middle_disturbs_nobody() -> None:
    read_end, write_end = os.pipe()
    stream = open(read_end, "rb", buffering=0)  # noqa: SIM115

    async def leave() -> None:
        ChunkReader([stream])

    asyncio.run(leave())
    # The thread wakes, and finds that the loop is closed.
    os.write(write_end, b"late")
    os.close(write_end)
    for thread in threading.enumerate():
        if thread.name == "input":
            thread.join()
    stream.close()


def test_below_a_buffered_stream_is_an_unbuffered_one() -> None:
    with open(sys.executable, "rb") as buffered:
        assert unbuffered(buffered) is buffered.raw  # type: ignore[comparison-overlap]
    memory = io.BytesIO()
    assert unbuffered(memory) is memory
