"""Watches which calls take the quick way, and what bytes are sent for them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from penstock.broker.network.call import Call
from penstock.protocol import quick_fetch, quick_produce
from penstock.protocol.apis import PRODUCE, api
from penstock.protocol.schema import Message
from penstock.protocol.session import Request, write_response
from tests.broker.harness import Client

FETCH = 1


@contextmanager
def only_the_quick_way() -> Iterator[None]:
    """No Produce or Fetch is decoded by the tables: a client that sends one that is not quick is hung up on."""

    def decode(call: Call) -> Message:
        assert call.api.key not in (PRODUCE, FETCH), f"{call.api.name} {call.version} has not gone the quick way"
        return Request.decode(call)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Call, "decode", decode)
        yield


@contextmanager
def only_the_ordinary_way() -> Iterator[None]:
    """Every Produce and Fetch is decoded by the tables."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (quick_produce, quick_fetch):
            patch.setattr(module, "read_single", lambda body, version: None)
            patch.setattr(module, "read_request", lambda body, version: None)
        yield


async def answer(client: Client) -> Any:
    """The next reply, after it was compared with what the tables write for it, byte for byte."""
    reader, session = client._reader, client._session
    correlation_id, kind, version = session._awaited[0]
    head = await reader.readexactly(4)
    raw = head + await reader.readexactly(int.from_bytes(head, "big"))
    [reply] = session.receive(raw)
    request = Request(api(kind.key), version, correlation_id, None, memoryview(b""))
    assert b"".join(bytes(chunk) for chunk in write_response(request, reply.response, version)) == raw
    return reply.response


async def ask(client: Client, message: Message, version: int) -> Any:
    client.send(message, version)
    return await answer(client)
