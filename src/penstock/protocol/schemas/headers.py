"""Schema tables: headers. Written by tools/generate_schemas.py; edit that instead."""

from penstock.protocol.schema import Message, row


class RequestHeader(Message, versions="1-2", flexible="2+"):
    request_api_key: int = row("int16", "0+", default=0)
    request_api_version: int = row("int16", "0+", default=0)
    correlation_id: int = row("int32", "0+", default=0)
    client_id: str | None = row("string", "1+", default="", nullable="1+", compact=False)


class ResponseHeader(Message, versions="0-1", flexible="1+"):
    correlation_id: int = row("int32", "0+", default=0)
