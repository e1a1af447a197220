"""Schema tables: sasl. Written by tools/generate_schemas.py; edit that instead."""

from collections.abc import Sequence

from penstock.protocol.schema import Message, row


class SaslHandshakeRequest(Message, key=17, versions="0-1", flexible="none"):
    mechanism: str = row("string", "0+", default="")


class SaslHandshakeResponse(Message, key=17, versions="0-1", flexible="none"):
    error_code: int = row("int16", "0+", default=0)
    mechanisms: Sequence[str] = row(["string"], "0+", default=())


class SaslAuthenticateRequest(Message, key=36, versions="0-2", flexible="2+"):
    auth_bytes: bytes = row("bytes", "0+", default=b"")


class SaslAuthenticateResponse(Message, key=36, versions="0-2", flexible="2+"):
    error_code: int = row("int16", "0+", default=0)
    error_message: str | None = row("string", "0+", default="", nullable="0+")
    auth_bytes: bytes = row("bytes", "0+", default=b"")
    session_lifetime_ms: int = row("int64", "1+", default=0, ignorable=True)
