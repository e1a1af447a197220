"""Stands between connections and handlers: it refuses requests, and holds replies back or drops them."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, cast

from penstock.broker.network.call import Call
from penstock.broker.network.connection import Connection
from penstock.broker.network.listener import Dispatch
from penstock.broker.network.sender import release
from penstock.protocol.codec import decode, decoder
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.errors import DecodeError
from penstock.protocol.schema import Message
from penstock.protocol.schemas.fetch import FetchResponse
from penstock.protocol.schemas.headers import ResponseHeader
from penstock.protocol.schemas.metadata import MetadataRequest, MetadataResponse
from penstock.protocol.schemas.produce import ProduceRequest
from penstock.testing.refusals import refusal

LENGTH_BYTES: Final = 4


@dataclass(slots=True, eq=False)
class Rule:
    """Which calls it is for: those of an API or all, up to a number or without an end."""

    api_key: int | None
    left: int | None
    struck: int = field(default=0, init=False)

    def strikes(self, call: Call) -> bool:
        if self.left == 0 or self.api_key not in (None, call.api.key):
            return False
        self.left = None if self.left is None else self.left - 1
        self.struck += 1
        return True


@dataclass(slots=True, eq=False)
class Fail(Rule):
    """The call is not made; it is answered with an error."""

    code: ErrorCode


@dataclass(slots=True, eq=False)
class Drop(Rule):
    """The call is made; when it is to be answered, the connection is cut."""


@dataclass(slots=True, eq=False)
class Delay(Rule):
    """The call is made; its reply waits."""

    seconds: float


class Interception:
    """All in the broker's thread. Rules count in the order in which they were added."""

    def __init__(self) -> None:
        self._rules: dict[Rule, None] = {}
        self._client_ids: dict[Connection, str | None] = {}
        self._late: dict[_Late, None] = {}
        self._is_stopping = False

    def add(self, rule: Rule) -> None:
        self._rules[rule] = None

    def remove(self, rule: Rule) -> None:
        """Replies that wait because of it leave now."""
        self._rules.pop(rule, None)
        for late in list(self._late):
            if late.rule is rule:
                late.send()

    def through(self, dispatch: Dispatch) -> Dispatch:
        """What connections call in place of the broker's own, from now until `stop`."""
        self._is_stopping = False

        def intercept(call: Call) -> None:
            self._remember(call)
            for rule in list(self._rules) if call.is_supported else ():
                if rule.strikes(call):
                    match rule:
                        case Fail() if call.api.request is MetadataRequest:
                            call.connection = cast(Connection, _Spoiled(call.connection, rule.code))
                        case Fail():
                            _refuse(call, rule.code)
                            return
                        case Drop():
                            call.connection = cast(Connection, _Dropped(call.connection))
                        case Delay():
                            call.connection = cast(Connection, _Delayed(call.connection, rule, self))
            dispatch(call)

        return intercept

    def client_id(self, connection: Connection) -> str | None:
        """The client id that the last request of the connection named."""
        return self._client_ids.get(connection)

    def _remember(self, call: Call) -> None:
        if call.connection not in self._client_ids:
            self._client_ids = {known: name for known, name in self._client_ids.items() if known.is_open}
        self._client_ids[call.connection] = call.client_id

    def stop(self) -> None:
        """No reply waits any longer."""
        self._is_stopping = True
        for late in list(self._late):
            late.send()

    def delay(self, rule: Delay, connection: Connection, answer: Callable[[], None], chunks: list[Any]) -> None:
        """Answer later, unless the rule is gone by now. `chunks` are the reply's, if it will not be sent."""
        if rule in self._rules and not self._is_stopping:
            late = _Late(rule, connection, answer, chunks, self._late)
            late.timer = asyncio.get_running_loop().call_later(rule.seconds, late.send)
            self._late[late] = None
        else:
            answer()


def _refuse(call: Call, code: ErrorCode) -> None:
    try:
        request = call.decode()
    except DecodeError as error:
        call.give_up(str(error))
        return
    if isinstance(request, ProduceRequest) and request.acks == 0:
        # The client waits for no reply that could carry the error.
        call.give_up(code.name)
    else:
        call.reply(refusal(request, call.api.response, call.version, code))


class _Intercepted:
    """A connection as handlers see it, but for the replies."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


class _Spoiled(_Intercepted):
    """Metadata with an error for each topic still lists the brokers: without any, clients would not know which to ask
    again."""

    def __init__(self, connection: Connection, code: ErrorCode) -> None:
        super().__init__(connection)
        self._code = code

    def reply(self, call: Call, response: Message | None, version: int | None) -> None:
        assert isinstance(response, MetadataResponse)
        for topic in response.topics:
            topic.error_code, topic.partitions = self._code, []
        self._connection.reply(call, response, version)

    def reply_written(self, call: Call, reply: list[Any]) -> None:
        """The reply is in bytes already: the length of the frame, a header, and the response."""
        frame = memoryview(b"".join(reply))[LENGTH_BYTES:]
        _, position = decoder(ResponseHeader, call.api.response_header_version(call.version))(frame, 0)
        self.reply(call, decode(call.api.response, call.version, frame, position), None)


class _Dropped(_Intercepted):
    def reply(self, call: Call, response: Message | None, version: int | None) -> None:
        self._cut(_ranges(response))

    def reply_written(self, call: Call, reply: list[Any]) -> None:
        self._cut(reply)

    def _cut(self, chunks: list[Any]) -> None:
        release(chunks)
        self._connection.abort("the test dropped the reply")


class _Delayed(_Intercepted):
    def __init__(self, connection: Connection, rule: Delay, interception: Interception) -> None:
        super().__init__(connection)
        self._rule = rule
        self._interception = interception

    def reply(self, call: Call, response: Message | None, version: int | None) -> None:
        answer = partial(self._connection.reply, call, response, version)
        self._interception.delay(self._rule, self._connection, answer, _ranges(response))

    def reply_written(self, call: Call, reply: list[Any]) -> None:
        answer = partial(self._connection.reply_written, call, reply)
        self._interception.delay(self._rule, self._connection, answer, reply)


@dataclass(slots=True, eq=False)
class _Late:
    """A reply on its way."""

    rule: Delay
    connection: Connection
    answer: Callable[[], None]
    chunks: list[Any]
    others: "dict[_Late, None]"
    timer: asyncio.TimerHandle = field(init=False)

    def send(self) -> None:
        self.timer.cancel()
        self.others.pop(self, None)
        if self.connection.is_open:
            self.answer()
        else:
            release(self.chunks)


def _ranges(response: Message | None) -> list[Any]:
    """What holds files open as long as it is neither sent nor released."""
    if not isinstance(response, FetchResponse):
        return []
    return [data.records for topic in response.responses for data in topic.partitions]
