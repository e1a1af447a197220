"""Requests and replies inside other messages: the same bytes as on a connection, without their length."""

import pytest

from penstock.protocol.apis import api
from penstock.protocol.codec import encode
from penstock.protocol.enclosed import enclose_reply, enclose_request, read_reply
from penstock.protocol.errors import DecodeError
from penstock.protocol.schemas.topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from penstock.protocol.session import ClientSession, Request, read_request

CREATE_TOPICS = 19
VERSIONS = range(2, 8)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("client_id", [None, "", "client"])
def test_an_enclosed_request_is_what_the_client_sent(version: int, client_id: str | None) -> None:
    message = CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=3)])
    _, chunks = ClientSession(client_id).send(message, version)
    sent = b"".join(chunks)[4:]
    assert enclose_request(read_request(memoryview(sent), Request)) == sent


@pytest.mark.parametrize("version", VERSIONS)
def test_an_enclosed_reply_is_read_as_what_it_was(version: int) -> None:
    kind = api(CREATE_TOPICS)
    request = Request(kind, version, 77, "client", memoryview(encode(CreateTopicsRequest(), version)))
    data = enclose_reply(request, CreateTopicsResponse(topics=[CreatableTopicResult(name="t", error_code=3)]))
    [topic] = read_reply(kind, version, 77, data).topics  # type: ignore[attr-defined]
    assert (topic.name, topic.error_code) == ("t", 3)
    with pytest.raises(DecodeError, match="a reply to request 77 is enclosed in place of one to 78"):
        read_reply(kind, version, 78, data)
    with pytest.raises(DecodeError):
        read_reply(kind, version, 77, data[:-1])
