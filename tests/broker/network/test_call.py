"""A call: what it knows of its request, and its two ways back."""

from typing import Any

from penstock.broker.network.call import Call
from penstock.protocol.schema import Message
from penstock.protocol.schemas.versions import ApiVersionsRequest, ApiVersionsResponse
from penstock.protocol.session import ClientSession, ServerSession


class Connection:
    def __init__(self) -> None:
        self.replies: list[tuple[Call, Message | None, int | None]] = []
        self.aborted: list[str] = []

    def reply(self, call: Call, response: Message | None, version: int | None) -> None:
        self.replies.append((call, response, version))

    def let_go(self, call: Call) -> None:
        call.body, call.let_go_bytes = memoryview(b""), len(call.body)

    def abort(self, reason: str) -> None:
        self.aborted.append(reason)


def make_call() -> tuple[Call, Connection]:
    _, chunks = ClientSession("someone").send(ApiVersionsRequest(), 2)
    [call] = ServerSession(Call).receive(b"".join(chunks))
    connection: Any = Connection()
    call.connection = connection
    return call, connection


def test_a_call_knows_the_version_and_who_asks() -> None:
    call, _ = make_call()
    assert (call.version, call.client_id) == (2, "someone")


def test_a_reply_goes_to_the_connection_that_the_call_came_by() -> None:
    call, connection = make_call()
    response = ApiVersionsResponse()
    call.reply(response, version=0)
    assert connection.replies == [(call, response, 0)]


def test_giving_up_closes_the_connection_with_the_reason() -> None:
    call, connection = make_call()
    call.give_up("no honest answer")
    assert connection.aborted == ["no honest answer"]
    assert connection.replies == []


def test_two_calls_are_never_the_same_though_their_requests_look_alike() -> None:
    first, _ = make_call()
    second, _ = make_call()
    assert first != second
    assert len({first, second}) == 2


def test_a_call_that_waits_for_its_client_lets_go_of_its_body_and_knows_its_size() -> None:
    call, _ = make_call()
    call.body = memoryview(bytes(100))
    call.when_gone(lambda gone: None)
    assert (len(call.body), call.size) == (0, 100)
    assert call.forget is not None
