"""An acceptor takes clients' connections from a listening socket, and pauses when there are no descriptors left."""

import asyncio
import errno
import logging
import socket
from collections.abc import Callable
from typing import Final

log = logging.getLogger(__name__)

# Connections that may wait to be accepted.
BACKLOG: Final = 1024
# Connections accepted in one turn of the loop.
AT_ONCE: Final = 32
PAUSE_SECONDS: Final = 1.0
# The machine or the process has run out of something: it may have it again once other connections are closed.
_EXHAUSTED: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Acceptor:
    """`accepted` gets each socket, which does not block."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, sock: socket.socket, accepted: Callable[[socket.socket], None]
    ) -> None:
        self._loop = loop
        self._sock = sock
        self._accepted = accepted
        self._pause: asyncio.TimerHandle | None = None
        sock.setblocking(False)
        sock.listen(BACKLOG)
        loop.add_reader(sock.fileno(), self._accept)

    def close(self) -> None:
        """Accept what has come, and no more."""
        if self._pause is not None:
            self._pause.cancel()
        else:
            self._loop.remove_reader(self._sock.fileno())
            self._accept()
        self._sock.close()

    def _accept(self) -> None:
        for _ in range(AT_ONCE):
            try:
                sock, _ = self._sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _EXHAUSTED:
                    raise
                log.error(
                    "no connections are accepted for a moment: raise the limit on open files (ulimit -n)",
                    extra={"error": str(error), "seconds": PAUSE_SECONDS},
                )
                self._loop.remove_reader(self._sock.fileno())
                self._pause = self._loop.call_later(PAUSE_SECONDS, self._go_on)
                return
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._accepted(sock)

    def _go_on(self) -> None:
        self._pause = None
        self._loop.add_reader(self._sock.fileno(), self._accept)
