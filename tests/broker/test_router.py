"""Routes: declared beside handlers, gathered in one table."""

from inspect import iscoroutinefunction

import pytest

from penstock.broker.handlers import ROUTERS
from penstock.broker.router import Router, route_table
from penstock.protocol.schema import Versions
from penstock.protocol.schemas.groups import HeartbeatRequest, HeartbeatResponse
from penstock.protocol.schemas.produce import ProduceRequest
from penstock.protocol.schemas.versions import ApiVersionsRequest


def test_a_handler_is_routed_by_its_request_with_the_versions_declared_beside_it() -> None:
    router = Router()

    @router.handles(HeartbeatRequest, versions=(1, 3))
    def heartbeat(broker: object, call: object, request: HeartbeatRequest) -> HeartbeatResponse:
        return HeartbeatResponse()

    [route] = router.routes
    assert (route.api.name, route.api.key) == ("Heartbeat", 12)
    assert route.versions == route.advertised == Versions(1, 3)
    assert route.handler is heartbeat


def test_more_versions_can_be_advertised_than_are_handled() -> None:
    router = Router()
    router.handles(ProduceRequest, versions=(3, 13), advertised=(0, 13))(lambda: None)
    assert router.routes[0].versions == Versions(3, 13)
    assert router.routes[0].advertised == Versions(0, 13)


def test_versions_that_the_tables_do_not_know_cannot_be_routed() -> None:
    with pytest.raises(AssertionError):
        Router().handles(HeartbeatRequest, versions=(0, 99))


def test_the_table_is_in_the_order_of_api_keys() -> None:
    one, other = Router(), Router()
    one.handles(ApiVersionsRequest, versions=(0, 4))(lambda: None)
    other.handles(HeartbeatRequest, versions=(0, 4))(lambda: None)
    other.handles(ProduceRequest, versions=(3, 13))(lambda: None)
    assert list(route_table([one, other])) == [0, 12, 18]


def test_an_api_has_one_handler() -> None:
    one, other = Router(), Router()
    one.handles(HeartbeatRequest, versions=(0, 1))(lambda: None)
    other.handles(HeartbeatRequest, versions=(2, 4))(lambda: None)
    with pytest.raises(AssertionError, match="Heartbeat has two handlers"):
        route_table([one, other])


def test_what_is_the_controllers_and_what_is_for_brokers_is_said_beside_the_handler() -> None:
    router = Router()
    router.handles(HeartbeatRequest, versions=(0, 4))(lambda: None)
    router.handles(ApiVersionsRequest, versions=(0, 4), forwarded=lambda *_: HeartbeatResponse(), brokers_only=True)(
        lambda: None
    )
    plain, special = router.routes
    assert (plain.forwarded, plain.brokers_only) == (None, False)
    assert special.forwarded is not None
    assert special.brokers_only


def test_handlers_of_what_is_forwarded_return_their_replies() -> None:
    """No connection is there to send them by."""
    forwarded = [route for route in route_table(ROUTERS).values() if route.forwarded is not None]
    assert {route.api.name for route in forwarded} == {
        "CreateTopics",
        "DeleteTopics",
        "CreatePartitions",
        "AlterConfigs",
        "IncrementalAlterConfigs",
        "BrokerHeartbeat",
        "AllocateProducerIds",
        "AlterPartition",
        "ElectLeaders",
        "AlterPartitionReassignments",
    }
    assert all(iscoroutinefunction(route.handler) for route in forwarded)
