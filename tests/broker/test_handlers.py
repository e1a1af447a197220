"""The list of all APIs that the broker offers: what it tells is what it has, in every version."""

import pytest

from penstock.broker.handlers import ROUTERS
from penstock.broker.router import route_table
from penstock.protocol.apis import api
from penstock.protocol.schema import Message
from penstock.protocol.schemas.produce import ProduceRequest
from penstock.protocol.schemas.versions import ApiVersionsRequest
from tests.broker.harness import in_loop, running
from tests.broker.peering import prove, secret_of

ROUTES = route_table(ROUTERS)

OFFERED = {
    "Produce": (0, 13),
    "Fetch": (4, 18),
    "ListOffsets": (1, 11),
    "Metadata": (0, 13),
    "OffsetCommit": (2, 10),
    "OffsetFetch": (1, 10),
    "FindCoordinator": (0, 6),
    "JoinGroup": (0, 9),
    "Heartbeat": (0, 4),
    "LeaveGroup": (0, 5),
    "SyncGroup": (0, 5),
    "DescribeGroups": (0, 6),
    "ListGroups": (0, 5),
    "ApiVersions": (0, 4),
    "CreateTopics": (2, 7),
    "DeleteTopics": (1, 6),
    "DeleteRecords": (0, 2),
    "InitProducerId": (0, 5),
    "OffsetForLeaderEpoch": (2, 4),
    "DescribeConfigs": (1, 4),
    "AlterConfigs": (0, 2),
    "DescribeLogDirs": (1, 4),
    "CreatePartitions": (0, 3),
    "DeleteGroups": (0, 2),
    "ElectLeaders": (0, 2),
    "IncrementalAlterConfigs": (0, 1),
    "AlterPartitionReassignments": (0, 1),
    "ListPartitionReassignments": (0, 0),
    "OffsetDelete": (0, 0),
    "DescribeCluster": (0, 2),
    "DescribeTopicPartitions": (0, 0),
    "SaslHandshake": (1, 1),
    "SaslAuthenticate": (0, 2),
}
TO_BROKERS = {
    "AlterPartition": (3, 3),
    "Envelope": (0, 0),
    "BrokerHeartbeat": (0, 1),
    "AllocateProducerIds": (0, 0),
}


def minimal(key: int) -> Message:
    """A request with every field at its default; without acknowledgement there would be no reply to look at."""
    return ProduceRequest(acks=1) if key == ProduceRequest.schema.key else api(key).request()


@pytest.mark.parametrize("key", ROUTES, ids=lambda key: ROUTES[key].api.name)
def test_every_routed_api_and_version_answers_a_minimal_request(key: int) -> None:
    route = ROUTES[key]

    @in_loop
    async def ask_all() -> None:
        async with running() as node:
            client = await node.connect()
            if route.brokers_only:
                await prove(client, await secret_of(node))
            for version in range(route.versions.first, route.versions.last + 1):
                response = await client.ask(minimal(key), version)
                assert type(response) is route.api.response, f"version {version}"

    ask_all()


@in_loop
async def test_api_versions_equals_the_routed_handlers_exactly() -> None:
    async with running() as node:
        client, broker = await node.connect(), await node.connect()
        await prove(broker, await secret_of(node))
        for version in range(5):
            asked = ApiVersionsRequest(client_software_name="test", client_software_version="1")
            for asking, is_broker in ((client, False), (broker, True)):
                response = await asking.ask(asked, version)
                told = {item.api_key: (item.min_version, item.max_version) for item in response.api_keys}
                routes = {key: route for key, route in ROUTES.items() if is_broker or not route.brokers_only}
                assert told == {key: tuple(route.advertised) for key, route in routes.items()}, f"version {version}"


def test_only_what_has_a_handler_is_advertised_but_for_the_oldest_produce() -> None:
    differing = {route.api.name: (route.versions, route.advertised) for route in ROUTES.values()}
    assert {name for name, (handled, told) in differing.items() if handled != told} == {"Produce"}
    assert differing["Produce"] == ((3, 13), (0, 13))


def test_what_is_offered_is_what_the_documentation_says() -> None:
    offered = {route.api.name: tuple(route.advertised) for route in ROUTES.values() if not route.brokers_only}
    assert offered == OFFERED
    to_brokers = {route.api.name: tuple(route.advertised) for route in ROUTES.values() if route.brokers_only}
    assert to_brokers == TO_BROKERS
