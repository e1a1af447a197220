"""Schema tables: scram. Written by tools/generate_schemas.py; edit that instead."""

from collections.abc import Sequence

from penstock.protocol.schema import Message, row


class UserName(Message):
    name: str = row("string", "0+", default="")


class DescribeUserScramCredentialsRequest(Message, key=50, versions="0", flexible="0+"):
    users: Sequence[UserName] | None = row([UserName], "0+", default=(), nullable="0+")


class CredentialInfo(Message):
    mechanism: int = row("int8", "0+", default=0)
    iterations: int = row("int32", "0+", default=0)


class DescribeUserScramCredentialsResult(Message):
    user: str = row("string", "0+", default="")
    error_code: int = row("int16", "0+", default=0)
    error_message: str | None = row("string", "0+", default="", nullable="0+")
    credential_infos: Sequence[CredentialInfo] = row([CredentialInfo], "0+", default=())


class DescribeUserScramCredentialsResponse(Message, key=50, versions="0", flexible="0+"):
    throttle_time_ms: int = row("int32", "0+", default=0)
    error_code: int = row("int16", "0+", default=0)
    error_message: str | None = row("string", "0+", default="", nullable="0+")
    results: Sequence[DescribeUserScramCredentialsResult] = row([DescribeUserScramCredentialsResult], "0+", default=())


class ScramCredentialDeletion(Message):
    name: str = row("string", "0+", default="")
    mechanism: int = row("int8", "0+", default=0)


class ScramCredentialUpsertion(Message):
    name: str = row("string", "0+", default="")
    mechanism: int = row("int8", "0+", default=0)
    iterations: int = row("int32", "0+", default=0)
    salt: bytes = row("bytes", "0+", default=b"")
    salted_password: bytes = row("bytes", "0+", default=b"")


class AlterUserScramCredentialsRequest(Message, key=51, versions="0", flexible="0+"):
    deletions: Sequence[ScramCredentialDeletion] = row([ScramCredentialDeletion], "0+", default=())
    upsertions: Sequence[ScramCredentialUpsertion] = row([ScramCredentialUpsertion], "0+", default=())


class AlterUserScramCredentialsResult(Message):
    user: str = row("string", "0+", default="")
    error_code: int = row("int16", "0+", default=0)
    error_message: str | None = row("string", "0+", default="", nullable="0+")


class AlterUserScramCredentialsResponse(Message, key=51, versions="0", flexible="0+"):
    throttle_time_ms: int = row("int32", "0+", default=0)
    results: Sequence[AlterUserScramCredentialsResult] = row([AlterUserScramCredentialsResult], "0+", default=())
