"""Links to brokers: one for equal settings, for as long as the process lives."""

import asyncio

import pytest

from penstock.spark.link import connect
from tests.spark.cluster import TestCluster


def test_equal_settings_share_a_link(cluster: TestCluster) -> None:
    settings = {"bootstrap.servers": cluster.bootstrap, "client.id": "a"}

    assert connect(settings) is connect(dict(reversed(settings.items())))
    assert connect(settings) is not connect(settings | {"client.id": "b"})


def test_what_is_submitted_goes_on_while_the_caller_does_something_else(cluster: TestCluster) -> None:
    one, other = cluster.link.submit(asyncio.sleep(0, "one")), cluster.link.submit(asyncio.sleep(0, "other"))

    assert [other.result(), one.result()] == ["other", "one"]


def test_an_error_comes_to_the_caller(cluster: TestCluster) -> None:
    async def fail() -> None:
        raise ValueError("as it should")

    with pytest.raises(ValueError, match="as it should"):
        cluster.link.run(fail())
