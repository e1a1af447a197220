"""Schema tables: tokens. Written by tools/generate_schemas.py; edit that instead."""

from collections.abc import Sequence

from penstock.protocol.schema import Message, row


class CreatableRenewers(Message):
    principal_type: str = row("string", "0+", default="")
    principal_name: str = row("string", "0+", default="")


class CreateDelegationTokenRequest(Message, key=38, versions="1-3", flexible="2+"):
    owner_principal_type: str | None = row("string", "3+", default="", nullable="3+")
    owner_principal_name: str | None = row("string", "3+", default="", nullable="3+")
    renewers: Sequence[CreatableRenewers] = row([CreatableRenewers], "0+", default=())
    max_lifetime_ms: int = row("int64", "0+", default=0)


class CreateDelegationTokenResponse(Message, key=38, versions="1-3", flexible="2+"):
    error_code: int = row("int16", "0+", default=0)
    principal_type: str = row("string", "0+", default="")
    principal_name: str = row("string", "0+", default="")
    token_requester_principal_type: str = row("string", "3+", default="")
    token_requester_principal_name: str = row("string", "3+", default="")
    issue_timestamp_ms: int = row("int64", "0+", default=0)
    expiry_timestamp_ms: int = row("int64", "0+", default=0)
    max_timestamp_ms: int = row("int64", "0+", default=0)
    token_id: str = row("string", "0+", default="")
    hmac: bytes = row("bytes", "0+", default=b"")
    throttle_time_ms: int = row("int32", "0+", default=0)


class RenewDelegationTokenRequest(Message, key=39, versions="1-2", flexible="2+"):
    hmac: bytes = row("bytes", "0+", default=b"")
    renew_period_ms: int = row("int64", "0+", default=0)


class RenewDelegationTokenResponse(Message, key=39, versions="1-2", flexible="2+"):
    error_code: int = row("int16", "0+", default=0)
    expiry_timestamp_ms: int = row("int64", "0+", default=0)
    throttle_time_ms: int = row("int32", "0+", default=0)


class ExpireDelegationTokenRequest(Message, key=40, versions="1-2", flexible="2+"):
    hmac: bytes = row("bytes", "0+", default=b"")
    expiry_time_period_ms: int = row("int64", "0+", default=0)


class ExpireDelegationTokenResponse(Message, key=40, versions="1-2", flexible="2+"):
    error_code: int = row("int16", "0+", default=0)
    expiry_timestamp_ms: int = row("int64", "0+", default=0)
    throttle_time_ms: int = row("int32", "0+", default=0)


class DescribeDelegationTokenOwner(Message):
    principal_type: str = row("string", "0+", default="")
    principal_name: str = row("string", "0+", default="")


class DescribeDelegationTokenRequest(Message, key=41, versions="1-3", flexible="2+"):
    owners: Sequence[DescribeDelegationTokenOwner] | None = row(
        [DescribeDelegationTokenOwner], "0+", default=(), nullable="0+"
    )


class DescribedDelegationTokenRenewer(Message):
    principal_type: str = row("string", "0+", default="")
    principal_name: str = row("string", "0+", default="")


class DescribedDelegationToken(Message):
    principal_type: str = row("string", "0+", default="")
    principal_name: str = row("string", "0+", default="")
    token_requester_principal_type: str = row("string", "3+", default="")
    token_requester_principal_name: str = row("string", "3+", default="")
    issue_timestamp: int = row("int64", "0+", default=0)
    expiry_timestamp: int = row("int64", "0+", default=0)
    max_timestamp: int = row("int64", "0+", default=0)
    token_id: str = row("string", "0+", default="")
    hmac: bytes = row("bytes", "0+", default=b"")
    renewers: Sequence[DescribedDelegationTokenRenewer] = row([DescribedDelegationTokenRenewer], "0+", default=())


class DescribeDelegationTokenResponse(Message, key=41, versions="1-3", flexible="2+"):
    error_code: int = row("int16", "0+", default=0)
    tokens: Sequence[DescribedDelegationToken] = row([DescribedDelegationToken], "0+", default=())
    throttle_time_ms: int = row("int32", "0+", default=0)
