"""Accepting: how many at a time, what happens without descriptors, and what is left at the end."""

import asyncio
import errno
import logging
import socket

import pytest

from penstock.broker.network import acceptor as acceptor_module
from penstock.broker.network.acceptor import AT_ONCE, Acceptor
from tests.waiting import in_loop, turns, until


class Scarce(socket.socket):
    """A listening socket for whose connections there may be no descriptors."""

    error: OSError | None = None
    asked = 0

    def accept(self) -> tuple[socket.socket, object]:
        self.asked += 1
        if self.error is not None:
            raise self.error
        return super().accept()


def listening() -> Scarce:
    sock = Scarce()
    sock.bind(("127.0.0.1", 0))
    return sock


def connect(sock: socket.socket, count: int) -> list[socket.socket]:
    return [socket.create_connection(sock.getsockname()) for _ in range(count)]


def close(*socks: socket.socket) -> None:
    for sock in socks:
        sock.close()


@in_loop
async def test_all_who_connect_are_accepted_a_few_in_a_turn() -> None:
    sock, accepted = listening(), list[socket.socket]()
    acceptor = Acceptor(asyncio.get_running_loop(), sock, accepted.append)
    clients = connect(sock, AT_ONCE + 5)
    await until(lambda: len(accepted) == AT_ONCE + 5)
    assert not any(one.getblocking() for one in accepted)
    assert all(one.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) for one in accepted)
    acceptor.close()
    close(*clients, *accepted)


@in_loop
async def test_without_descriptors_it_pauses_says_so_once_and_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(acceptor_module, "PAUSE_SECONDS", 0.02)
    sock, accepted = listening(), list[socket.socket]()
    sock.error = OSError(errno.EMFILE, "Too many open files")
    acceptor = Acceptor(asyncio.get_running_loop(), sock, accepted.append)
    with caplog.at_level(logging.ERROR, "penstock"):
        clients = connect(sock, 1)
        await until(lambda: sock.asked == 1)
        await turns()
        assert sock.asked == 1, "while it pauses it does not ask again"
        assert "ulimit -n" in caplog.text
        sock.error = None
        await until(lambda: len(accepted) == 1)
    acceptor.close()
    close(*clients, *accepted)


@in_loop
async def test_a_client_that_left_before_it_was_accepted_is_passed_over() -> None:
    sock, accepted = listening(), list[socket.socket]()
    sock.error = ConnectionAbortedError()
    acceptor = Acceptor(asyncio.get_running_loop(), sock, accepted.append)
    clients = connect(sock, 1)
    await until(lambda: sock.asked)
    sock.error = None
    await until(lambda: accepted)
    acceptor.close()
    close(*clients, *accepted)


@in_loop
async def test_who_has_connected_before_the_end_is_accepted_and_nobody_after_it() -> None:
    sock, accepted = listening(), list[socket.socket]()
    acceptor = Acceptor(asyncio.get_running_loop(), sock, accepted.append)
    address = sock.getsockname()
    clients = connect(sock, 3)
    acceptor.close()
    assert len(accepted) == 3
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address)
    close(*clients, *accepted)


@in_loop
async def test_it_can_be_closed_while_it_pauses() -> None:
    sock = listening()
    sock.error = OSError(errno.ENFILE, "File table overflow")
    acceptor = Acceptor(asyncio.get_running_loop(), sock, lambda accepted: None)
    clients = connect(sock, 1)
    await until(lambda: sock.asked)
    acceptor.close()
    assert sock.fileno() == -1
    close(*clients)
