"""A connection makes calls of the bytes that a client sends, and sends the replies in the order of the requests.

Over asyncio's transports, all connections of a listener receive into one large buffer, whose views are good only until
`buffer_updated` returns. Listeners do not share one: the loops of two brokers in a process run in threads of their own.
"""

import asyncio
import logging
import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from penstock.broker.log_rates import RatedLog
from penstock.broker.network.call import Call
from penstock.broker.network.flow_control import LARGE_BYTES
from penstock.broker.network.sender import Sender, release
from penstock.machines.broker_proof import Identity, ListeningSide
from penstock.protocol.errors import DecodeError, EncodeError
from penstock.protocol.schema import Message
from penstock.protocol.session import ServerSession, write_response

if TYPE_CHECKING:
    from penstock.broker.network.listener import Listener

RECEIVE_BYTES = 1024 * 1024
# Bytes read at a time from a connection whose requests are small.
_SMALL_RECEIVE_BYTES = 64 * 1024
# A connection that has this much to send, or this many calls without a reply, is not read from. A thousand connections
# may do that at the same time.
MAX_QUEUED_BYTES = 256 * 1024
MAX_UNANSWERED = 1000
# Requests taken at a time out of what was received; the rest stays bytes.
_REQUESTS_AT_ONCE = 100
# Chunks of replies in a turn up to which they count as sent.
_SENT_SOON = 4
# Calls that came together are made in groups of this size, between which the size of their replies is looked at;
# fewer after a large one.
_CALLS_AT_ONCE = 32
_LARGE_REPLY = 64 * 1024

log = RatedLog(logging.getLogger(__name__))
NOTHING = memoryview(b"")


class Connection(asyncio.BufferedProtocol):
    """Over a transport of the engine, which calls `received`, or one of asyncio's, by way of `buffer_updated`."""

    __slots__ = (
        "_awaited",
        "__weakref__",
        "_frame_began",
        "_gathered",
        "_goes_on",
        "_held",
        "_in_line_since",
        "_is_large",
        "_is_reading",
        "_listener",
        "_outbox",
        "_reads_much",
        "_reply_bytes",
        "_sender",
        "_session",
        "_transport",
        "broker",
        "is_open",
        "listener_name",
        "_last_used",
        "peer",
        "proving",
        "turn",
    )

    def __init__(self, listener: "Listener", listener_name: str) -> None:
        self._listener = listener
        self.turn = listener.turn
        self.listener_name = listener_name
        self._session = ServerSession(Call, listener.max_request_bytes)
        self._outbox: list[Any] = []
        # Requests that have come and have to wait, for an earlier one or for the client to take its replies.
        self._held: list[Call] = []
        self._awaited: Call | None = None
        self._goes_on = False
        # The bytes of replies that have to wait for the reply to an earlier request.
        self._reply_bytes = 0
        self._is_reading = True
        self._reads_much = False
        self._frame_began: float | None = None
        # Bytes kept of requests that have not come to their end, or are not looked at yet, as counted.
        self._gathered = 0
        self._is_large = False
        # Since when the broker has let others come first with their large requests.
        self._in_line_since: float | None = None
        self._last_used = 0.0
        self.is_open = False
        self.peer = ""
        # The broker at the other end, once it has proved to be one, and how far it has come with that.
        self.broker: Identity | None = None
        self.proving: ListeningSide | None = None

    # The transport calls these

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A TCP server gives such a transport; uvloop's class does not say so.
        self._transport = transport = cast(asyncio.Transport, transport)
        self._sender = Sender(self._listener.loop, transport, self.abort, self._regulate)
        address = transport.get_extra_info("peername")
        self.peer = f"{address[0]}:{address[1]}" if address else "?"
        self.is_open = True
        self._last_used = self._listener.loop.time()
        sock = transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._listener.connected(self)

    @property
    def receive_bytes(self) -> int:
        """How much to read at a time."""
        return RECEIVE_BYTES if self._reads_much and not self._listener.budget.is_tight else _SMALL_RECEIVE_BYTES

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._listener.receive_view[: self.receive_bytes]

    def buffer_updated(self, nbytes: int) -> None:
        self.turn.hold(views_stay=False)
        try:
            self.received(self._listener.receive_view[:nbytes])
        except Exception as error:
            self.failed(error)
        # Others may have sent something, too, in this turn of the loop.
        self.turn.settle_soon()

    def received(self, data: memoryview) -> None:
        """Make the calls that came whole. The bytes stay as they are until this returns, or the turn is settled."""
        listener, session = self._listener, self._session
        self._last_used = now = listener.loop.time()
        try:
            if self._awaited is None and not self._held and (call := session.receive_one(data)) is not None:
                # This is the usual case: a client that waits for its replies.
                budget = listener.budget
                budget.add(len(call.body))
                call.connection = self
                call.received_at = now
                listener.dispatch(call)
                if (
                    self._is_reading
                    and not self._held
                    and not self._reply_bytes
                    and not self._sender.queued_bytes
                    and session.unanswered < MAX_UNANSWERED
                    and budget.used_bytes < budget.limit_bytes
                ):
                    # There is nothing to regulate.
                    return
            else:
                self._receive(data, now)
        except DecodeError as error:
            self.abort(str(error))
        self._regulate()

    def _receive(self, data: memoryview, now: float) -> None:
        """Make the calls that these bytes complete, of which there may be none or many."""
        requests = self._session.receive(data, _REQUESTS_AT_ONCE)
        if len(data) >= _SMALL_RECEIVE_BYTES:
            self._reads_much = len(requests) < _REQUESTS_AT_ONCE
        if requests or self._frame_began is None:
            self._take(requests, now)
        else:
            self._count(self._session.frames.waiting_bytes)

    def failed(self, error: Exception) -> None:
        """Something of ours raised an error while this connection was served: the client starts over."""
        log.error("a connection broke", owner=self._listener, extra={"peer": self.peer}, exc_info=error)
        self.abort("internal error")

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, error: Exception | None) -> None:
        if self.is_open:
            self._listener.closed["client"] += 1
        self.is_open = False
        budget = self._listener.budget
        self._sender.close()
        self._held.clear()
        release(self._outbox)
        self._outbox = []
        self._awaited = None
        for call in self._session.abandon():
            release(call.written or ())
            call.written = None
            if not call.answered:
                budget.remove(len(call.body))
                # A handler may still have the call, and answer it in vain.
                call.body = NOTHING
                if call.forget is not None:
                    forget, call.forget = call.forget, None
                    forget(call)
        budget.forget(self)
        budget.remove(self._gathered)
        # They refer to this connection, and each other: without that their memory is free now, and not when the
        # garbage collector finds them.
        del self._session, self._sender, self._transport
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
        waiting = self._session.frames.waiting_bytes
        # While calls are held nothing is read, so it is unknown whether the last one is finished.
        self._frame_began = now if waiting and not self._held else None
        if waiting != self._gathered:
            self._count(waiting)

    def _count(self, waiting: int) -> None:
        """Count the bytes that are kept and are no calls yet."""
        budget = self._listener.budget
        if waiting >= self._gathered:
            budget.add(waiting - self._gathered)
        else:
            budget.remove(self._gathered - waiting)
        self._gathered = waiting
        is_large = waiting > LARGE_BYTES and not self._held
        if is_large or self._is_large:
            self._is_large = is_large
            if not is_large:
                self._in_line_since = None
            budget.gathered(self, waiting if is_large else 0)

    def _make_calls(self, calls: Sequence[Call], now: float) -> None:
        dispatch = self._listener.dispatch
        for number, call in enumerate(calls):
            if self._awaited is not None or (
                (
                    number % _CALLS_AT_ONCE == _CALLS_AT_ONCE - 1
                    or (self._outbox and len(self._outbox[-1]) > _LARGE_REPLY)
                )
                and self._is_full()
            ):
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
            self._regulate()

    def reply(self, call: Call, response: Message | None, version: int | None) -> None:
        if not self.is_open:
            return
        try:
            chunks = self._session.answer(call, response, version)
        except EncodeError as error:
            facts = {"api": call.api.name, "error": str(error)}
            log.error("a reply could not be written", owner=self._listener, extra=facts)
            self.abort(str(error))
            return
        if response is not None:
            self._listener.meter.replied(call, response)
        self._answered(call, chunks)

    async def reply_from_thread(self, call: Call, response: Message) -> None:
        listener = self._listener
        written = await listener.loop.run_in_executor(None, write_response, call, response, call.version)
        if self.is_open:
            listener.meter.replied(call, response)
            self.reply_written(call, written)
        else:
            release(written)

    def reply_written(self, call: Call, reply: list[Any]) -> None:
        if self.is_open:
            self._answered(call, self._session.answer_written(call, reply))

    def _answered(self, call: Call, chunks: list[Any]) -> None:
        listener = self._listener
        listener.meter.answered(call)
        listener.budget.remove(len(call.body))
        if call.forget is not None:
            # The callback refers to the call.
            call.forget = None
        if chunks:
            if not self._outbox:
                self.turn.cork(self)
            self._outbox += chunks
            if self._reply_bytes:
                self._reply_bytes -= _size(chunks) - _size(call.written)
        else:
            self._reply_bytes += _size(call.written)
        self.release(call)

    def let_go(self, call: Call) -> None:
        """The call has been read, and waits for what the client asked for: its bytes do not count any more."""
        listener = self._listener
        size = len(call.body)
        if self.is_open and size:
            listener.meter.took(call, size)
            call.body = NOTHING
            call.let_go_bytes = size
            listener.budget.remove(size)

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
                    # The chunks include a range of a file.
                    pass
            self._sender.send(chunks)
            if not self._is_reading or self._sender.queued_bytes:
                self._regulate()

    def proved(self, broker: Identity) -> None:
        """The other end is a broker of this cluster."""
        self.broker = broker
        self._listener.proved(self)

    def abort(self, reason: str, kind: str = "error") -> None:
        """Close at once: the other side broke the protocol, or went away. The kind is what it is counted by."""
        if self.is_open:
            facts = {"peer": self.peer, "reason": reason}
            log.info("connection closed", owner=self._listener, kind=kind, extra=facts)
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
        return self._sender.is_idle and not self._outbox and not self._session.unanswered

    def stalled_for(self, now: float) -> float:
        """Seconds for which the other side has not taken what we have for it."""
        return 0.0 if self._sender.is_idle else now - self._sender.progressed_at

    def unfinished_for(self, now: float) -> float:
        """Seconds since the beginning of a frame whose rest has not come."""
        return 0.0 if self._frame_began is None or self._in_line_since is not None else now - self._frame_began

    def idle_for(self, now: float) -> float:
        """Seconds since the last request, or since the last look that found one unanswered or kept waiting."""
        if self._session.unanswered or self._in_line_since is not None:
            self._last_used = now
        return now - self._last_used

    @property
    def blocks_itself(self) -> bool:
        """Whether requests have to wait for an earlier one, which waits because the client asked for that."""
        return bool(self._held) and self._session.first.forget is not None

    @property
    def has_replies(self) -> bool:
        return self.is_open and not (self._sender.is_idle and self._reply_bytes == 0)

    @property
    def reply_bytes(self) -> int:
        """Memory of replies that the client has not taken, or that wait for the reply to an earlier request."""
        return self._sender.memory_bytes + sum(
            [len(chunk) for call in self._session.answered() for chunk in call.written or () if type(chunk) is bytes]
        )

    def keeps_replies_for(self, now: float) -> float:
        """Seconds for which replies have stayed here."""
        return now - (self._last_used if self._sender.is_idle else self._sender.progressed_at)

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
        # The first in line of those with large requests has its time counted, whatever keeps it from being read.
        is_let = self._may_gather() if self._is_large else listener.budget.has_room(self)
        may_read = is_let and has_room and not listener.is_closing
        if may_read != self._is_reading:
            self._is_reading = may_read
            if may_read:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def _may_gather(self) -> bool:
        now, since = self._listener.loop.time(), self._in_line_since
        if not self._listener.budget.may_gather(self):
            self._in_line_since = now if since is None else since
            return False
        if since is not None:
            self._in_line_since = None
            if self._frame_began is not None:
                # The client is not to blame for the time that it was not read.
                self._frame_began += now - since
        return True


def _size(chunks: Sequence[Any] | None) -> int:
    return sum(map(len, chunks or ()))
