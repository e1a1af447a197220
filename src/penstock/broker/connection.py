"""A client's connection: bytes in, calls to dispatch; replies out, in the order of the requests, corked.

All connections of a process receive into one large buffer, whose views are good only until `buffer_updated` returns.
"""

import asyncio
import logging
import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from penstock.broker.call import Call
from penstock.broker.sending import Sender, release
from penstock.protocol.errors import DecodeError, EncodeError
from penstock.protocol.schema import Message
from penstock.protocol.session import ServerSession

if TYPE_CHECKING:
    from penstock.broker.listener import Listener

RECEIVE_BYTES = 1024 * 1024
# As much is read at a time from a connection whose requests are small: if they have to wait, their bytes do.
_SMALL_RECEIVE_BYTES = 64 * 1024
# A connection that has this much to send, or this many calls without a reply, is not read from. A thousand connections
# may do that at the same time.
MAX_QUEUED_BYTES = 256 * 1024
MAX_UNANSWERED = 1000
# So many requests are taken out of what was received at a time; the rest stays as the bytes that it came in.
_REQUESTS_AT_ONCE = 100
# So many chunks of replies in a turn count as sent.
_SENT_SOON = 4
# So many calls that came together are made before somebody looks at what their replies amount to.
_CALLS_AT_ONCE = 32

log = logging.getLogger(__name__)
_receive_buffer = bytearray(RECEIVE_BYTES)
_receive_view = memoryview(_receive_buffer)
_small_receive_view = _receive_view[:_SMALL_RECEIVE_BYTES]


class Connection(asyncio.BufferedProtocol):
    __slots__ = (
        "_awaited",
        "_frame_began",
        "_goes_on",
        "_held",
        "_is_reading",
        "_listener",
        "_outbox",
        "_reads_much",
        "_reply_bytes",
        "_sender",
        "_session",
        "_transport",
        "is_open",
        "listener_name",
        "_last_used",
        "peer",
    )

    def __init__(self, listener: "Listener", listener_name: str) -> None:
        self._listener = listener
        self.listener_name = listener_name
        self._session = ServerSession(Call, listener.max_request_bytes)
        self._outbox: list[Any] = []
        # Requests that have come and have to wait, for an earlier one or for the client to take its replies.
        self._held: list[Call] = []
        self._awaited: Call | None = None
        self._goes_on = False
        # Of replies that have to wait for the reply to an earlier request.
        self._reply_bytes = 0
        self._is_reading = True
        self._reads_much = False
        self._frame_began: float | None = None
        self._last_used = 0.0
        self.is_open = False
        self.peer = ""

    # The transport calls these

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # As a TCP server gives; uvloop's does not say so by its class.
        self._transport = transport = cast(asyncio.Transport, transport)
        self._sender = Sender(self._listener.loop, transport, self.abort, self._regulate)
        address = transport.get_extra_info("peername")
        self.peer = f"{address[0]}:{address[1]}" if address else "?"
        self.is_open = True
        self._last_used = self._listener.loop.time()
        sock = transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._listener.connected(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return _receive_view if self._reads_much else _small_receive_view

    def buffer_updated(self, nbytes: int) -> None:
        listener = self._listener
        self._last_used = now = listener.loop.time()
        listener.cork.hold()
        try:
            requests = self._session.receive(_receive_view[:nbytes], _REQUESTS_AT_ONCE)
            if nbytes >= _SMALL_RECEIVE_BYTES:
                self._reads_much = len(requests) < _REQUESTS_AT_ONCE
            if len(requests) == 1 and self._awaited is None and not self._held:
                # As it is nearly always with a client that waits for its replies.
                [call] = requests
                listener.budget.add(len(call.body))
                call.connection = self
                call.received_at = now
                listener.dispatch(call)
                self._frame_began = now if self._session.frames.waiting_bytes else None
            elif requests or self._frame_began is None:
                self._take(requests, now)
        except DecodeError as error:
            self.abort(str(error))
        listener.cork.release()
        self._regulate()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, error: Exception | None) -> None:
        if self.is_open:
            self._listener.closed["client"] += 1
        self.is_open = False
        self._sender.close()
        self._held.clear()
        release(self._outbox)
        for call in self._session.abandon():
            release(call.written or ())
            if not call.answered:
                self._listener.budget.remove(call.size)
                if call.forget is not None:
                    call.forget(call)
        self._listener.disconnected(self)

    def pause_writing(self) -> None:
        self._sender.pause()

    def resume_writing(self) -> None:
        self._sender.resume()
        self._regulate()

    # Calls and their replies

    def _take(self, calls: list[Call], now: float) -> None:
        """Make the calls that have come, and those that came with them and were not looked at yet."""
        while calls:
            self._listener.budget.add(sum([len(call.body) for call in calls]))
            self._make_calls(calls, now)
            if self._held or not self.is_open:
                break
            calls = self._session.more(_REQUESTS_AT_ONCE) if len(calls) == _REQUESTS_AT_ONCE else []
        # While calls are held nothing is read, and who knows whether the last one is finished.
        is_unfinished = not self._held and self._session.frames.waiting_bytes
        self._frame_began = now if is_unfinished else None

    def _make_calls(self, calls: Sequence[Call], now: float) -> None:
        dispatch = self._listener.dispatch
        for number, call in enumerate(calls):
            if self._awaited is not None or (number % _CALLS_AT_ONCE == _CALLS_AT_ONCE - 1 and self._is_full()):
                # Copies, since the receive buffer is used again.
                for waiting in calls[number:]:
                    waiting.body = memoryview(bytearray(waiting.body))
                self._held += calls[number:]
                return
            call.connection = self
            call.received_at = now
            dispatch(call)
            if not self.is_open:
                return

    def _is_full(self) -> bool:
        """Whether what was asked for so far is as much as one client may have under way."""
        self.send_outbox()
        return not self._has_room()

    def _has_room(self) -> bool:
        return (
            self._sender.queued_bytes + self._reply_bytes < MAX_QUEUED_BYTES
            and self._session.unanswered - len(self._held) < MAX_UNANSWERED
        )

    def hold(self, call: Call) -> None:
        """Make no further calls until this one has its reply, as what follows may build on it."""
        self._awaited = call

    def release(self, call: Call) -> None:
        """What this call does has its place in the order: others may follow, though its reply is still to come."""
        if self._awaited is call:
            self._awaited = None
            self._regulate()

    def _go_on(self) -> None:
        """Make the calls that had to wait."""
        self._goes_on = False
        held, self._held = self._held, []
        if self.is_open:
            now = self._listener.loop.time()
            try:
                self._make_calls(held, now)
                if not self._held:
                    self._take(self._session.more(_REQUESTS_AT_ONCE), now)
            except DecodeError as error:
                self.abort(str(error))
                return
            self._listener.cork.release()
            self._regulate()

    def reply(self, call: Call, response: Message | None, version: int | None) -> None:
        if not self.is_open:
            return
        try:
            chunks = self._session.answer(call, response, version)
        except EncodeError as error:
            log.error("a reply could not be written", extra={"api": call.api.name, "error": str(error)})
            self.abort(str(error))
            return
        if response is not None:
            self._listener.meter.replied(call, response)
        self._answered(call, chunks)

    def reply_written(self, call: Call, reply: list[Any]) -> None:
        if self.is_open:
            self._answered(call, self._session.answer_written(call, reply))

    def _answered(self, call: Call, chunks: list[Any]) -> None:
        listener = self._listener
        listener.meter.answered(call)
        listener.budget.remove(len(call.body))
        if chunks:
            if not self._outbox:
                listener.cork.add(self)
            self._outbox += chunks
            if self._reply_bytes:
                self._reply_bytes -= _size(chunks) - _size(call.written)
        else:
            self._reply_bytes += _size(call.written)
        self.release(call)

    def waited(self, call: Call, seconds: float) -> None:
        self._listener.meter.waited(call, seconds)

    def sends_soon(self, call: Call) -> bool:
        """Whether a reply to this call, if it came now, would leave in this turn."""
        return self._session.is_next(call) and len(self._outbox) < _SENT_SOON and self._sender.is_idle

    def send_outbox(self) -> None:
        if self.is_open and (chunks := self._outbox):
            self._outbox = []
            if len(chunks) > 1:
                try:
                    chunks = [b"".join(chunks)]
                except TypeError:
                    # There is a range of a file among them.
                    pass
            self._sender.send(chunks)
            if not self._is_reading or self._sender.queued_bytes:
                self._regulate()

    def abort(self, reason: str, kind: str = "error") -> None:
        """Close at once: the other side broke the protocol, or went away. The kind is what it is counted by."""
        if self.is_open:
            log.info("connection closed", extra={"peer": self.peer, "reason": reason})
            self._listener.count_abort(reason, kind)
            self.is_open = False
            self._transport.abort()

    def close(self) -> None:
        """Close after what is queued has been sent."""
        self._transport.close()

    @property
    def unanswered(self) -> int:
        return self._session.unanswered

    @property
    def is_drained(self) -> bool:
        return self._sender.is_idle and not self._session.unanswered

    def stalled_for(self, now: float) -> float:
        """Seconds for which the other side has not taken what we have for it."""
        return 0.0 if self._sender.is_idle else now - self._sender.progressed_at

    def unfinished_for(self, now: float) -> float:
        """Seconds since the beginning of a frame whose rest has not come."""
        return 0.0 if self._frame_began is None else now - self._frame_began

    def idle_for(self, now: float) -> float:
        """Seconds since the last request, if none is unanswered."""
        return 0.0 if self._session.unanswered else now - self._last_used

    def resume_reading(self) -> None:
        self._regulate()

    def stop_reading(self) -> None:
        self._regulate()

    def _regulate(self) -> None:
        """Read only while the client takes its replies and the broker has room for more."""
        if not self.is_open:
            return
        has_room = self._has_room()
        if self._held:
            if has_room and self._awaited is None and not self._goes_on:
                self._goes_on = True
                self._listener.loop.call_soon(self._go_on)
            has_room = False
        listener = self._listener
        may_read = has_room and listener.budget.has_room(self) and not listener.is_closing
        if may_read != self._is_reading:
            self._is_reading = may_read
            if may_read:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()


def _size(chunks: Sequence[Any] | None) -> int:
    return sum(map(len, chunks or ()))
