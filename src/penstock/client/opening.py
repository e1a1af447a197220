"""These functions open a client: they read its first argument, an address or a dict of settings, and open the
cluster."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from penstock.client.cluster.cluster import Cluster
from penstock.client.cluster.outages import ConnectionListener
from penstock.client.settings import ClientSettings


def given_settings(first: str | Mapping[str, Any] | None) -> Mapping[str, Any]:
    """The first argument of every client as settings: a broker's address, or settings by Kafka's dotted names."""
    return {"bootstrap.servers": first} if isinstance(first, str) else first or {}


def open_cluster(settings: ClientSettings, on_connection: ConnectionListener | None = None) -> Cluster:
    return Cluster(
        settings.bootstrap_servers,
        client_id=settings.client_id,
        timeout_ms=settings.default_api_timeout_ms,
        request_timeout_ms=settings.request_timeout_ms,
        security=settings.security,
        fails_fast=settings.fail_fast,
        on_connection=on_connection,
    )


def to_milliseconds(time: int | datetime) -> int:
    """A point in time as Kafka counts it. A datetime without a time zone could be any of them: it is refused."""
    if not isinstance(time, datetime):
        return time
    if time.tzinfo is None:
        raise ValueError(f"{time} has no time zone: write datetime(..., tzinfo=UTC), or use datetime.now(UTC)")
    return round(time.timestamp() * 1000)
