"""ApiVersions over the wire: features, and who the client says it is."""

import pytest

from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schemas.versions import ApiVersionsRequest
from tests.broker.harness import in_loop, running


def named(name: str, version: str) -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name=name, client_software_version=version)


@in_loop
async def test_features_are_told_from_version_3_on() -> None:
    async with running() as node:
        client = await node.connect()
        for version in range(5):
            response = await client.ask(named("test", "1.0"), version)
            supported = {item.name: (item.min_version, item.max_version) for item in response.supported_features}
            finalized = {item.name: item.max_version_level for item in response.finalized_features}
            if version < 3:
                assert (supported, finalized) == ({}, {})
            else:
                assert set(supported) == {"metadata.version"}
                assert finalized == {name: high for name, (_, high) in supported.items()}
                assert response.finalized_features_epoch >= 0


@in_loop
async def test_features_that_are_not_built_are_not_told() -> None:
    async with running() as node:
        response = await (await node.connect()).ask(named("test", "1.0"), 4)
        told = {item.name for item in response.supported_features}
        assert not told & {"transaction.version", "group.version", "share.version"}


@pytest.mark.parametrize(
    ("name", "version", "expected"),
    [
        ("apache-kafka-java", "4.2.0", ErrorCode.NONE),
        ("librdkafka", "2.6.0-1.g", ErrorCode.NONE),
        ("a", "1", ErrorCode.NONE),
        ("", "1.0", ErrorCode.INVALID_REQUEST),
        ("name", "", ErrorCode.INVALID_REQUEST),
        ("two words", "1.0", ErrorCode.INVALID_REQUEST),
        ("-x", "1.0", ErrorCode.INVALID_REQUEST),
        ("x", "1.0.", ErrorCode.INVALID_REQUEST),
        ("name\n", "1.0", ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_client_gives_a_name_and_a_version_that_can_be_logged(name: str, version: str, expected: ErrorCode) -> None:
    @in_loop
    async def run() -> None:
        async with running() as node:
            client = await node.connect()
            for api_version in (3, 4):
                assert (await client.ask(named(name, version), api_version)).error_code == expected
            # Before version 3 it says nothing.
            assert (await client.ask(named(name, version), 2)).error_code == ErrorCode.NONE

    run()
