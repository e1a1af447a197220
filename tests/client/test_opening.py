"""What every client begins with."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from penstock.client.opening import given_settings, open_cluster, to_milliseconds
from penstock.client.settings import ClientSettings


def test_the_first_argument_is_an_address_or_settings_or_nothing() -> None:
    assert given_settings("b:1") == {"bootstrap.servers": "b:1"}
    assert given_settings({"client.id": "me"}) == {"client.id": "me"}
    assert given_settings(None) == {}


def test_a_cluster_is_opened_as_the_settings_say() -> None:
    cluster = open_cluster(ClientSettings(bootstrap_servers="a:1,b:2", request_timeout_ms=7, default_api_timeout_ms=8))
    assert [str(address) for address in cluster.bootstrap] == ["a:1", "b:2"]
    assert (cluster.request_timeout_ms, cluster.timeout_ms) == (7, 8)


def test_a_time_is_milliseconds_or_a_datetime_with_a_zone() -> None:
    assert to_milliseconds(1500) == 1500
    assert to_milliseconds(datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC)) == 1500
    assert to_milliseconds(datetime(1970, 1, 1, 1, 0, 1, tzinfo=timezone(timedelta(hours=1)))) == 1000
    with pytest.raises(ValueError, match="no time zone"):
        to_milliseconds(datetime(2026, 1, 1))
