"""Puts requests and replies into the bytes of another message, header and all, as Envelopes carry them (KIP-590)."""

from typing import Any

from penstock.protocol.apis import Api
from penstock.protocol.codec import decode, decoder, encoder
from penstock.protocol.errors import DecodeError
from penstock.protocol.schema import Message
from penstock.protocol.schemas.headers import RequestHeader, ResponseHeader
from penstock.protocol.session import Request, write_response


def enclose_request(request: Request) -> bytes:
    """The bytes of a request that has come in, as they came."""
    header = RequestHeader(
        request_api_key=request.api.key,
        request_api_version=request.version,
        correlation_id=request.correlation_id,
        client_id=request.client_id,
    )
    chunks: list[Any] = []
    encoder(RequestHeader, request.api.request_header_version(request.version))(header, chunks)
    return b"".join([*chunks, request.body])


def enclose_reply(request: Request, response: Message) -> bytes:
    _, *chunks = write_response(request, response, request.version)
    return b"".join(chunks)


def read_reply(api: Api, version: int, correlation_id: int, data: bytes) -> Message:
    """The reply to an enclosed request; DecodeError if it is none."""
    header, position = decoder(ResponseHeader, api.response_header_version(version))(memoryview(data), 0)
    if header.correlation_id != correlation_id:
        raise DecodeError(f"a reply to request {header.correlation_id} is enclosed in place of one to {correlation_id}")
    return decode(api.response, version, data, position)
