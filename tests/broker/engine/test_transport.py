"""A socket in the engine's epoll, whose other end the test reads when it likes."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from penstock.broker.engine import engine_of
from penstock.broker.engine.transport import SocketTransport
from penstock.broker.engine.turn import Turn
from tests.waiting import in_loop, turns, until


class Receiver:
    """Keeps what it was told."""

    def __init__(self, turn: Turn) -> None:
        self.turn = turn
        self.receive_bytes = 1000
        self.data: list[bytes] = []
        self.pauses = 0
        self.resumes = 0
        self.lost: list[Exception | None] = []
        self.failures: list[Exception] = []
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        self.lost.append(error)

    def pause_writing(self) -> None:
        self.pauses += 1

    def resume_writing(self) -> None:
        self.resumes += 1

    def received(self, data: memoryview) -> None:
        self.data.append(bytes(data))

    def failed(self, error: Exception) -> None:
        self.failures.append(error)
        self.transport.abort()


@contextmanager
def connected(receiver: Receiver | None = None) -> Iterator[tuple[SocketTransport, Receiver, socket.socket]]:
    loop = asyncio.get_running_loop()
    engine = engine_of(loop)
    assert engine is not None
    near, far = socket.socketpair()
    near.setblocking(False)
    far.setblocking(False)
    near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
    receiver = receiver or Receiver(Turn(loop, lambda: 0))
    with far:
        yield engine.connect(loop, near, receiver), receiver, far


async def closed(receiver: Receiver) -> None:
    await until(lambda: receiver.lost)


@in_loop
async def test_what_the_other_side_sends_is_received_in_pieces_of_the_size_asked_for() -> None:
    with connected() as (transport, receiver, far):
        far.send(b"a" * 1500)
        await until(lambda: len(b"".join(receiver.data)) == 1500)
        assert [len(piece) for piece in receiver.data] == [1000, 500]
        assert not receiver.turn.is_held
        transport.abort()
        await closed(receiver)


@in_loop
async def test_while_reading_is_paused_nothing_is_received_and_nothing_is_lost() -> None:
    with connected() as (transport, receiver, far):
        transport.pause_reading()
        far.send(b"later")
        await turns()
        assert not receiver.data
        transport.resume_reading()
        await until(lambda: receiver.data == [b"later"])
        transport.abort()
        await closed(receiver)


@in_loop
async def test_a_client_that_goes_while_reading_is_paused_costs_no_turns() -> None:
    with connected() as (transport, receiver, far):
        transport.pause_reading()
        far.close()
        await turns()
        assert not receiver.lost
        transport.resume_reading()
        await closed(receiver)
        assert receiver.lost == [None]


@in_loop
async def test_what_the_other_side_does_not_take_waits_and_the_writer_is_told() -> None:
    with connected() as (transport, receiver, far):
        data = bytes(range(256)) * 4000
        transport.write(data)
        assert (receiver.pauses, receiver.resumes) == (1, 0)
        transport.write(b"the rest")
        assert transport.get_write_buffer_size() > 0
        got = bytearray()
        while len(got) < len(data) + 8:
            try:
                got += far.recv(100_000)
            except BlockingIOError:
                await asyncio.sleep(0)
        assert got == data + b"the rest"
        await until(lambda: receiver.resumes == 1)
        assert transport.get_write_buffer_size() == 0
        transport.abort()
        await closed(receiver)


@in_loop
async def test_a_close_sends_what_was_written_and_then_tells_the_receiver_once() -> None:
    with connected() as (transport, receiver, far):
        data = bytes(1_000_000)
        transport.write(data)
        transport.close()
        transport.close()
        assert transport.is_closing()
        await turns()
        assert not receiver.lost
        got = 0
        while got < len(data):
            try:
                got += len(far.recv(100_000))
            except BlockingIOError:
                await asyncio.sleep(0)
        await closed(receiver)
        await turns()
        assert receiver.lost == [None]
        assert far.recv(1) == b""


@in_loop
async def test_an_abort_drops_what_was_written_and_closes_the_socket() -> None:
    with connected() as (transport, receiver, _):
        transport.write(bytes(1_000_000))
        transport.abort()
        transport.write(b"more")
        await closed(receiver)
        assert receiver.lost == [None]
        assert transport.get_extra_info("socket").fileno() == -1
        assert transport.get_extra_info("peername", "gone") == "gone"


@in_loop
async def test_a_side_that_resets_the_connection_is_an_error_the_receiver_is_told_of() -> None:
    with connected() as (transport, receiver, far):
        far.close()
        # The end of the stream is seen first, or else that nobody takes the bytes.
        transport.write(b"x")
        await closed(receiver)
        assert isinstance(receiver.lost[0], BrokenPipeError)


@in_loop
async def test_an_error_of_ours_closes_one_connection_and_no_other() -> None:
    class Broken(Receiver):
        def received(self, data: memoryview) -> None:
            raise RuntimeError("a bug")

    loop = asyncio.get_running_loop()
    with connected(Broken(Turn(loop, lambda: 0))) as (_, broken, far), connected() as (transport, sound, other):
        far.send(b"x")
        other.send(b"y")
        await closed(broken)
        assert [str(error) for error in broken.failures] == ["a bug"]
        await until(lambda: sound.data == [b"y"])
        transport.abort()
        await closed(sound)
