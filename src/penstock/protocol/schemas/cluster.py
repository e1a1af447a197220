"""Schema tables: cluster. Written by tools/generate_schemas.py; edit that instead."""

from collections.abc import Sequence

from penstock.protocol.schema import Message, row


class DescribeClusterRequest(Message, key=60, versions="0-2", flexible="0+"):
    include_cluster_authorized_operations: bool = row("bool", "0+", default=False)
    endpoint_type: int = row("int8", "1+", default=1)
    include_fenced_brokers: bool = row("bool", "2+", default=False)


class DescribeClusterBroker(Message):
    broker_id: int = row("int32", "0+", default=0)
    host: str = row("string", "0+", default="")
    port: int = row("int32", "0+", default=0)
    rack: str | None = row("string", "0+", default=None, nullable="0+")
    is_fenced: bool = row("bool", "2+", default=False)


class DescribeClusterResponse(Message, key=60, versions="0-2", flexible="0+"):
    throttle_time_ms: int = row("int32", "0+", default=0)
    error_code: int = row("int16", "0+", default=0)
    error_message: str | None = row("string", "0+", default=None, nullable="0+")
    endpoint_type: int = row("int8", "1+", default=1)
    cluster_id: str = row("string", "0+", default="")
    controller_id: int = row("int32", "0+", default=-1)
    brokers: Sequence[DescribeClusterBroker] = row([DescribeClusterBroker], "0+", default=())
    cluster_authorized_operations: int = row("int32", "0+", default=-2147483648)


class UnregisterBrokerRequest(Message, key=64, versions="0", flexible="0+"):
    broker_id: int = row("int32", "0+", default=0)


class UnregisterBrokerResponse(Message, key=64, versions="0", flexible="0+"):
    throttle_time_ms: int = row("int32", "0+", default=0)
    error_code: int = row("int16", "0+", default=0)
    error_message: str | None = row("string", "0+", default="", nullable="0+")


class FeatureUpdateKey(Message):
    feature: str = row("string", "0+", default="")
    max_version_level: int = row("int16", "0+", default=0)
    allow_downgrade: bool = row("bool", "0", default=False)
    upgrade_type: int = row("int8", "1+", default=1)


class UpdateFeaturesRequest(Message, key=57, versions="0-2", flexible="0+"):
    timeout_ms: int = row("int32", "0+", default=60000)
    feature_updates: Sequence[FeatureUpdateKey] = row([FeatureUpdateKey], "0+", default=())
    validate_only: bool = row("bool", "1+", default=False)


class UpdatableFeatureResult(Message):
    feature: str = row("string", "0+", default="")
    error_code: int = row("int16", "0+", default=0)
    error_message: str | None = row("string", "0+", default="", nullable="0+")


class UpdateFeaturesResponse(Message, key=57, versions="0-2", flexible="0+"):
    throttle_time_ms: int = row("int32", "0+", default=0)
    error_code: int = row("int16", "0+", default=0)
    error_message: str | None = row("string", "0+", default="", nullable="0+")
    results: Sequence[UpdatableFeatureResult] = row([UpdatableFeatureResult], "0-1", default=(), ignorable=True)
