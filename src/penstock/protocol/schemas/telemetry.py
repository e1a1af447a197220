"""Schema tables: telemetry. Written by tools/generate_schemas.py; edit that instead."""

from collections.abc import Sequence

from penstock.protocol.schema import ZERO_UUID, Message, row


class GetTelemetrySubscriptionsRequest(Message, key=71, versions="0", flexible="0+"):
    client_instance_id: bytes = row("uuid", "0+", default=ZERO_UUID)


class GetTelemetrySubscriptionsResponse(Message, key=71, versions="0", flexible="0+"):
    throttle_time_ms: int = row("int32", "0+", default=0)
    error_code: int = row("int16", "0+", default=0)
    client_instance_id: bytes = row("uuid", "0+", default=ZERO_UUID)
    subscription_id: int = row("int32", "0+", default=0)
    accepted_compression_types: Sequence[int] = row(["int8"], "0+", default=())
    push_interval_ms: int = row("int32", "0+", default=0)
    telemetry_max_bytes: int = row("int32", "0+", default=0)
    delta_temporality: bool = row("bool", "0+", default=False)
    requested_metrics: Sequence[str] = row(["string"], "0+", default=())


class PushTelemetryRequest(Message, key=72, versions="0", flexible="0+"):
    client_instance_id: bytes = row("uuid", "0+", default=ZERO_UUID)
    subscription_id: int = row("int32", "0+", default=0)
    terminating: bool = row("bool", "0+", default=False)
    compression_type: int = row("int8", "0+", default=0)
    metrics: bytes = row("bytes", "0+", default=b"")


class PushTelemetryResponse(Message, key=72, versions="0", flexible="0+"):
    throttle_time_ms: int = row("int32", "0+", default=0)
    error_code: int = row("int16", "0+", default=0)
