"""Schema tables: versions. Written by tools/generate_schemas.py; edit that instead."""

from collections.abc import Sequence

from penstock.protocol.schema import Message, row


class ApiVersionsRequest(Message, key=18, versions="0-4", flexible="3+"):
    client_software_name: str = row("string", "3+", default="", ignorable=True)
    client_software_version: str = row("string", "3+", default="", ignorable=True)


class ApiVersion(Message):
    api_key: int = row("int16", "0+", default=0)
    min_version: int = row("int16", "0+", default=0)
    max_version: int = row("int16", "0+", default=0)


class SupportedFeatureKey(Message):
    name: str = row("string", "3+", default="")
    min_version: int = row("int16", "3+", default=0)
    max_version: int = row("int16", "3+", default=0)


class FinalizedFeatureKey(Message):
    name: str = row("string", "3+", default="")
    max_version_level: int = row("int16", "3+", default=0)
    min_version_level: int = row("int16", "3+", default=0)


class ApiVersionsResponse(Message, key=18, versions="0-4", flexible="3+"):
    error_code: int = row("int16", "0+", default=0)
    api_keys: Sequence[ApiVersion] = row([ApiVersion], "0+", default=())
    throttle_time_ms: int = row("int32", "1+", default=0, ignorable=True)
    supported_features: Sequence[SupportedFeatureKey] = row(
        [SupportedFeatureKey], "3+", default=(), tag=0, tagged="3+", ignorable=True
    )
    finalized_features_epoch: int = row("int64", "3+", default=-1, tag=1, tagged="3+", ignorable=True)
    finalized_features: Sequence[FinalizedFeatureKey] = row(
        [FinalizedFeatureKey], "3+", default=(), tag=2, tagged="3+", ignorable=True
    )
    zk_migration_ready: bool = row("bool", "3+", default=False, tag=3, tagged="3+", ignorable=True)
